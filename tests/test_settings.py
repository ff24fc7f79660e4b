"""One home for settings: nothing else has defaults, and what the docs say of them is true."""

from __future__ import annotations

import inspect
import re
from dataclasses import asdict, fields
from pathlib import Path

import pytest

import discovr_sc
from discovr_sc import DISCOVR, module, settings
from discovr_sc.train import AdversarialPlan

DOCS = Path(__file__).parents[1] / "docs"
MODELS = ["DISCOVR", "CSVAE", "HCSVAE", "DIVA", "CCVAE", "CVAE"]


def arguments(function) -> set[str]:
    return set(inspect.signature(function).parameters)


def documented(cls) -> set[str]:
    """Names in the section Parameters of a docstring."""
    section = re.search(r"Parameters\n-+\n(.*?)(\n\S[^\n]*\n-+\n|\Z)", inspect.getdoc(cls), re.DOTALL).group(1)
    return {name.strip() for line in re.findall(r"^(\S.*)$", section, re.MULTILINE) for name in line.split(",")}


def of_discovr(kind: settings.ByData) -> dict[str, float]:
    """Default weights of the terms that DISCOVR's objective has."""
    return {name: float(value) for name, value in asdict(kind.weights).items() if name != "classify"}


@pytest.mark.parametrize("name", [f"{name}Module" for name in MODELS])
def test_modules_have_no_defaults_of_their_own(name):
    module_cls = getattr(module, name)
    ours = {item.name for item in fields(module_cls.settings_cls)}
    assert not arguments(module_cls.__init__) & ours


@pytest.mark.parametrize("name", MODELS)
def test_the_signature_of_a_model_shows_its_settings(name):
    model_cls = getattr(discovr_sc, name)
    shown = inspect.signature(model_cls).parameters
    defaults = asdict(getattr(module, f"{name}Module").settings_cls())
    assert {key: shown[key].default for key in defaults} == defaults


def test_every_setting_is_documented_once():
    assert {item.name for item in fields(settings.DISCOVRSettings)} <= documented(DISCOVR)
    assert {item.name for item in fields(settings.PlanSettings)} <= documented(AdversarialPlan)
    assert {item.name for item in fields(settings.Weights)} == documented(settings.Weights)


def test_the_plan_has_no_defaults_of_its_own():
    assert not arguments(AdversarialPlan.__init__) & {item.name for item in fields(settings.PlanSettings)}


def test_docstrings_tell_the_default_weights_and_plan():
    text = inspect.getdoc(DISCOVR)
    of_counts, others = text.split("By default, for counts,")[1].split("encode_covariates")[0].split("otherwise")
    for kind, of_kind in ((settings.COUNTS, of_counts), (settings.VECTORS, others)):
        told = {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", of_kind)}
        assert told == of_discovr(kind), "the docstring of DISCOVR in model/discovr.py, argument weights"
    told = dict(re.findall(r"``(\w+)=([\de.-]+)``", inspect.getdoc(DISCOVR.train)))
    plan = {name: float(value) for name, value in told.items()}
    assert plan == settings.COUNT_PLAN, "the docstring of train in model/base.py, argument plan_kwargs"


def test_the_guide_tells_the_default_weights():
    text = (DOCS / "guide" / "weights.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\d,.]+) \| ([\d,.]+) \|", text, re.MULTILINE)
    for column, kind in enumerate((settings.COUNTS, settings.VECTORS), start=1):
        told = {row[0]: float(row[column].replace(",", "")) for row in rows}
        assert told == of_discovr(kind), "the table of defaults in docs/guide/weights.md"


@pytest.mark.parametrize("experiment", settings.PAPER)
@pytest.mark.parametrize("method", settings.PAPER["kang"].weights)
def test_the_papers_settings_are_settings_of_their_model(method, experiment):
    settings_cls = getattr(settings, f"{method.removesuffix('-noadv').upper()}Settings")
    chosen = settings_cls.of(settings.paper_settings(method, experiment)).completed(n_conditions=2)
    assert chosen.weights == settings.paper_weights(method, experiment)
    assert (chosen.weights.adv == 0) == (method.endswith("-noadv") or method in ("diva", "ccvae"))


def test_an_unknown_setting_is_refused_with_the_name_that_is_meant():
    with pytest.raises(TypeError, match="'n_latent' is not a setting.*did you mean 'n_latent_"):
        settings.DISCOVRSettings.of({"n_latent": 5})
    with pytest.raises(TypeError, match=r"'tau' is not a setting.*choose from \['n_latent_z'"):
        settings.DISCOVRSettings.of({"tau": 5})


def test_weights_that_are_given_in_part_keep_the_others():
    chosen = settings.DISCOVRSettings(weights={"adv": 8.0}).completed(n_conditions=2)
    assert chosen.weights.adv == 8
    assert chosen.weights.mmd == settings.COUNTS.weights.mmd


@pytest.mark.parametrize(("n_conditions", "n_latent_w"), [(2, 2), (3, 3), (10, 10), (26, 10)])
def test_w_of_counts_has_a_dimension_for_each_condition_within_bounds(n_conditions, n_latent_w):
    assert settings.DISCOVRSettings().completed(n_conditions).n_latent_w == n_latent_w
    assert settings.DISCOVRSettings(n_latent_w=4).completed(n_conditions).n_latent_w == 4
    assert settings.DISCOVRSettings(likelihood="gaussian").completed(n_conditions).n_latent_w == 2


@pytest.mark.parametrize("name", ["n_components_z", "center_w"])
def test_what_is_left_out_depends_on_the_kind_of_data_and_what_is_given_stays(name):
    for likelihood, kind in (("zinb", settings.COUNTS), ("gaussian", settings.VECTORS)):
        assert getattr(settings.DISCOVRSettings(likelihood=likelihood).completed(2), name) == getattr(kind, name)
    given = {"n_components_z": 7, "center_w": False}[name]
    assert getattr(settings.DISCOVRSettings(**{name: given}).completed(2), name) == given


@pytest.mark.parametrize(("n_cells", "n_epochs"), [(100, 400), (8_000, 62), (13_999, 36), (1_000_000, 10)])
def test_small_data_sets_are_passed_over_more_often(n_cells, n_epochs):
    assert settings.default_epochs(n_cells) == n_epochs
