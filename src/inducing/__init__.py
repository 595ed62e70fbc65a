"""Sparse Gaussian processes under one notation: `import inducing as ig`.

The functional core (kernels, bases, `condition`, `log_evidence`, `fit`) speaks of the latent f in raw units; the scikit-learn
estimators standardise inside and speak of observations. Heavy libraries load when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "condition": "regression",
    "log_evidence": "regression",
    "log_evidence_and_gradient": "regression",
    "Posterior": "posterior",
    "prior": "posterior",
    "kl_divergence": "posterior",
    "update": "online",
    "update_together": "online",
    "information_gain": "online",
    "most_informative": "online",
    "expectation_propagation": "propagation",
    "relevance_vectors": "relevance",
    "sparse_kernel_pca": "kernel_pca",
    "Sites": "sites",
    "fit": "fitting",
    "fit_expectation_propagation": "fitting_ep",
    "Fit": "fitting",
    "LogNormal": "fitting",
    "diagnose": "diagnosis",
    "Diagnosis": "diagnosis",
    "SparseGPRegressor": "estimators",
    "SparseGPClassifier": "classification",
    "OnlineGPRegressor": "streaming",
    "GPDensity": "density",
    "MultiscaleKernelRidge": "multiscale",
    "MultiscaleSVM": "multiscale",
    "compare": "comparison",
    "as_source": "origins",
    "load": "files",
}
_MODULES = (
    "backend",
    "kernels",
    "means",
    "bases",
    "approximations",
    "augmentation",
    "committee",
    "distributed",
    "eigenfunctions",
    "iterative",
    "local",
    "products",
    "likelihoods",
    "mixtures",
    "fields",
    "wind",
    "wind_model",
    "errors",
    "metrics",
    "datasets",
    "plots",
    "animation",
    "recipes",
    "selection",
    "outofcore",
    "sources",
    "squared",
)

__all__ = ["__version__", *_WHERE, *_MODULES]

if TYPE_CHECKING:
    from . import (
        animation,
        approximations,
        augmentation,
        bases,
        committee,
        datasets,
        distributed,
        eigenfunctions,
        errors,
        fields,
        iterative,
        kernels,
        likelihoods,
        local,
        means,
        metrics,
        mixtures,
        outofcore,
        plots,
        products,
        recipes,
        selection,
        sources,
        squared,
        wind,
        wind_model,
    )
    from .classification import SparseGPClassifier
    from .comparison import compare
    from .density import GPDensity
    from .diagnosis import Diagnosis, diagnose
    from .estimators import SparseGPRegressor
    from .files import load
    from .fitting import Fit, LogNormal, fit
    from .fitting_ep import fit_expectation_propagation
    from .kernel_pca import sparse_kernel_pca
    from .multiscale import MultiscaleKernelRidge, MultiscaleSVM
    from .online import information_gain, most_informative, update, update_together
    from .origins import as_source
    from .posterior import Posterior, kl_divergence, prior
    from .propagation import expectation_propagation
    from .regression import condition, log_evidence, log_evidence_and_gradient
    from .relevance import relevance_vectors
    from .sites import Sites
    from .streaming import OnlineGPRegressor


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
