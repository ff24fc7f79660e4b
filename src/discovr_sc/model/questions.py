"""The questions that one may ask of a trained model: each is a function of tools/, here by its name."""

from discovr_sc.model.description import describe
from discovr_sc.model.stored import StoredModel
from discovr_sc.tools import (
    counterfactual,
    counterfactual_check,
    differential,
    effects,
    latents,
    page,
    query_data,
    reconstruction,
    report,
    samples,
)


class Questions(StoredModel):
    """Methods of every model, by the tool that has them."""

    get_latent_representation = latents.get_latent_representation
    predict_condition = latents.predict_condition
    get_normalized_expression = reconstruction.get_normalized_expression
    posterior_predictive_sample = reconstruction.posterior_predictive_sample
    get_reconstruction = reconstruction.get_reconstruction
    get_reconstruction_error = reconstruction.get_reconstruction_error
    get_marginal_ll = reconstruction.get_marginal_ll
    get_latent_library_size = reconstruction.get_latent_library_size
    disentanglement_report = report.disentanglement_report
    report = page.report
    predict_counterfactual = counterfactual.predict_counterfactual
    compare_effects = counterfactual_check.compare_effects
    differential_expression = differential.differential_expression
    get_condition_effect = effects.get_condition_effect
    get_w_differences = samples.get_w_differences
    differential_abundance = samples.differential_abundance
    load_query_data = classmethod(query_data.load_query_data)
    prepare_query_anndata = staticmethod(query_data.prepare_query_anndata)
    add_condition = query_data.add_condition
    __repr__ = describe
