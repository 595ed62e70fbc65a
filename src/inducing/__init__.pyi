"""The public names, each with its home: type checkers read this file, and `__init__.py` finds names by it."""

from typing import Any

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
from .learning.fitting import fit_expectation_propagation as fit_expectation_propagation
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
from .model.table import Sites as Sites
from .pictures import animation as animation
from .pictures import plots as plots
from .sources import datasets as datasets
from .sources import distributed as distributed
from .sources.arrays import as_source as as_source
from .sources.table_encoder import TableEncoder as TableEncoder

__version__: str
__all__: list[str]
SAVED: dict[str, str]
SAVED_LIGHT: dict[str, str]
EXTRAS: dict[str, str]
BESIDE: dict[str, str]

def package(name: str) -> Any: ...
def __dir__() -> list[str]: ...
def __getattr__(name: str) -> Any: ...
