"""The bare loop has the model's networks and learns; the benchmark runs."""

from __future__ import annotations

import re

import pytest
import torch

from discovr_sc import DISCOVR, cli
from discovr_sc.data import anndata_to_tensors, noisy_swiss_roll
from discovr_sc.experiments.bench.swiss_roll import BareLoop


def test_the_bare_loop_has_the_models_networks():
    adata = noisy_swiss_roll(100)
    DISCOVR.setup_anndata(adata, "condition", tensor_key="x")
    module = DISCOVR.paper(adata, "swiss-roll").module
    bare = BareLoop()
    groups = (bare.model_optimizer.param_groups[0]["params"], bare.adversary_optimizer.param_groups[0]["params"])
    # scvi-tools' layers see the label in the second layer of q(w | x, y), too.
    assert sum(p.numel() for group in groups for p in group) + 2 * 128 == sum(p.numel() for p in module.parameters())


def test_the_bare_loop_learns():
    torch.manual_seed(0)
    x, y = anndata_to_tensors(noisy_swiss_roll(2000))
    bare = BareLoop()

    def error():
        with torch.no_grad():
            z = bare.z_encoder(x).chunk(2, -1)[0]
            w = bare.w_encoder(torch.cat([x, torch.nn.functional.one_hot(y, 2)], -1)).chunk(2, -1)[0]
            return (bare.decoder(torch.cat([z, w], -1)) - x).square().mean().item()

    before = error()
    bare.train(x, y, 10)
    assert error() < 0.3 * before


def test_the_command_prints_the_ratio(capsys):
    assert cli.main(["benchmark", "--n", "500", "--epochs", "1"]) == 0
    numbers = re.search(r"DISCOVR ([\d.]+) s, of a bare loop ([\d.]+) s: ([\d.]+)x", capsys.readouterr().out)
    model, bare, ratio = map(float, numbers.groups())
    assert ratio == pytest.approx(model / bare, abs=0.01 + 0.02 * ratio / min(model, bare))  # of rounded seconds
