"""Sparse Gaussian processes under one notation: `import inducing as ig`.

The functional core (kernels, bases, `condition`, `log_evidence`, `fit`) speaks of the latent f in raw units;
the scikit-learn estimators standardise inside and speak of observations. Names load with their modules when
first used; the tables here say which module that is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {  # of functions and classes
    "inference.regression": "condition log_evidence log_evidence_and_gradient",
    "inference.left_out": "leave_one_out",
    "inference.sensitivity": "sobol_indices",
    "model.paths": "probability_of_maximum probability_above",
    "inference.neighbours": "NeighboursPredictor",
    "inference.information": "information_gain most_informative",
    "inference.online": "update update_together",
    "inference.propagation": "expectation_propagation",
    "model.posterior": "Posterior prior kl_divergence",
    "model.problem": "NoiseByLevel",
    "model.sites": "Sites",
    "beside.relevance": "relevance_vectors",
    "beside.kernel_pca": "sparse_kernel_pca",
    "beside.laplace": "laplace",
    "beside.mixture": "mixture",
    "learning.fitting": "fit Fit LogNormal",
    "learning.fitting_ep": "fit_expectation_propagation",
    "learning.diagnosis": "diagnose Diagnosis",
    "estimators.regressor": "SparseGPRegressor",
    "estimators.classifier": "SparseGPClassifier",
    "estimators.online": "OnlineGPRegressor",
    "estimators.density": "GPDensity",
    "estimators.multiscale": "MultiscaleKernelRidge MultiscaleSVM",
    "estimators.comparison": "compare",
    "estimators.warming": "warm",
    "estimators.distilling": "distil",
    "estimators.exporting": "export",
    "estimators.citing": "citation",
    "sources.arrays": "as_source",
    "sources.table_encoder": "TableEncoder",
    "files.models": "load",
}
_NAMES = {name: module for module, names in _HOMES.items() for name in names.split()}
# what a model file may hold, by the name of its class; nothing else in a file is ever imported
_KINDS = "Posterior NeighboursPredictor SparseGPRegressor SparseGPClassifier OnlineGPRegressor GPDensity"
SAVED = {name: _NAMES[name] for name in _KINDS.split()}
# those of them that can be loaded for predictions alone
SAVED_LIGHT = dict.fromkeys(
    ("SparseGPRegressor", "SparseGPClassifier", "OnlineGPRegressor"), "estimators.light"
)
_ROOMS = {  # of modules
    "model": "kernels means bases likelihoods",
    "sources": "distributed datasets",
    "inference": "mixtures fields selection",
    "learning": "recipes outofcore",
    "beside": "augmentation committee eigenfunctions local squared wind wind_model",
    "pictures": "plots animation",
}
_MODULES = {name: f"{room}.{name}" for room, names in _ROOMS.items() for name in names.split()}
_MODULES |= {"errors": "errors", "metrics": "metrics", "progress": "progress", "sources": "sources"}
_MODULES |= {"backend": "numerics", "approximations": "model.table"}
_MODULES |= {"products": "inference.conjugate_gradients.products"}
_MODULES |= {"iterative": "inference.conjugate_gradients.predictor"}

_OPTIONAL = {"river": "estimators.river"}  # modules that need a package of their name
EXTRAS = {  # packages that the core does without, by the extra that brings them
    "cli": "rich typer pandas pyarrow narwhals",
    "plot": "matplotlib",
    "dask": "dask distributed zarr",
    "gpu": "torch",
    "river": "river",
    "export": "onnx onnxruntime",
}

# methods that are no effective prior, and the modules whose `condition` makes their predictors
BESIDE = dict.fromkeys(("bcm", "rbcm", "gpoe", "poe"), "beside.committee")
BESIDE |= {"nystrom": "beside.nystrom", "asor": "beside.augmentation"}

__all__ = ["__version__", *_NAMES, *_MODULES]

if TYPE_CHECKING:
    from . import errors as errors
    from . import metrics as metrics
    from . import numerics as backend
    from . import progress as progress
    from . import sources as sources
    from .beside import augmentation as augmentation
    from .beside import committee as committee
    from .beside import eigenfunctions as eigenfunctions
    from .beside import local as local
    from .beside import squared as squared
    from .beside import wind as wind
    from .beside import wind_model as wind_model
    from .beside.kernel_pca import sparse_kernel_pca as sparse_kernel_pca
    from .beside.laplace import laplace as laplace
    from .beside.mixture import mixture as mixture
    from .beside.relevance import relevance_vectors as relevance_vectors
    from .estimators.citing import citation as citation
    from .estimators.classifier import SparseGPClassifier as SparseGPClassifier
    from .estimators.comparison import compare as compare
    from .estimators.density import GPDensity as GPDensity
    from .estimators.distilling import distil as distil
    from .estimators.exporting import export as export
    from .estimators.multiscale import MultiscaleKernelRidge as MultiscaleKernelRidge
    from .estimators.multiscale import MultiscaleSVM as MultiscaleSVM
    from .estimators.online import OnlineGPRegressor as OnlineGPRegressor
    from .estimators.regressor import SparseGPRegressor as SparseGPRegressor
    from .estimators.warming import warm as warm
    from .files.models import load as load
    from .inference import fields as fields
    from .inference import mixtures as mixtures
    from .inference import selection as selection
    from .inference.conjugate_gradients import predictor as iterative
    from .inference.conjugate_gradients import products as products
    from .inference.information import information_gain as information_gain
    from .inference.information import most_informative as most_informative
    from .inference.left_out import leave_one_out as leave_one_out
    from .inference.neighbours import NeighboursPredictor as NeighboursPredictor
    from .inference.online import update as update
    from .inference.online import update_together as update_together
    from .inference.propagation import expectation_propagation as expectation_propagation
    from .inference.regression import condition as condition
    from .inference.regression import log_evidence as log_evidence
    from .inference.regression import log_evidence_and_gradient as log_evidence_and_gradient
    from .inference.sensitivity import sobol_indices as sobol_indices
    from .learning import outofcore as outofcore
    from .learning import recipes as recipes
    from .learning.diagnosis import Diagnosis as Diagnosis
    from .learning.diagnosis import diagnose as diagnose
    from .learning.fitting import Fit as Fit
    from .learning.fitting import LogNormal as LogNormal
    from .learning.fitting import fit as fit
    from .learning.fitting_ep import fit_expectation_propagation as fit_expectation_propagation
    from .model import bases as bases
    from .model import kernels as kernels
    from .model import likelihoods as likelihoods
    from .model import means as means
    from .model import table as approximations
    from .model.paths import probability_above as probability_above
    from .model.paths import probability_of_maximum as probability_of_maximum
    from .model.posterior import Posterior as Posterior
    from .model.posterior import kl_divergence as kl_divergence
    from .model.posterior import prior as prior
    from .model.problem import NoiseByLevel as NoiseByLevel
    from .model.sites import Sites as Sites
    from .pictures import animation as animation
    from .pictures import plots as plots
    from .sources import datasets as datasets
    from .sources import distributed as distributed
    from .sources.arrays import as_source as as_source
    from .sources.table_encoder import TableEncoder as TableEncoder


def package(name: str) -> Any:
    """Import a package that an extra brings, or a module of it; raise with the command if it is missing."""
    from .errors import MissingPackageError

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        top = name.split(".")[0]
        extra = next(extra for extra, packages in EXTRAS.items() if top in packages.split())
        if (error.name or "").split(".")[0] not in EXTRAS[extra].split():
            raise
        message = f"this needs {top}, which is not installed: pip install 'inducing[{extra}]'"
        raise MissingPackageError(message) from error


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    if name in _OPTIONAL:
        package(name)
    if name in _MODULES or name in _OPTIONAL:
        return import_module(f"{__name__}.{(_MODULES | _OPTIONAL)[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
