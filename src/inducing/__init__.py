"""Sparse Gaussian processes under one notation: `import inducing as ig`.

The functional core (kernels, bases, `condition`, `log_evidence`, `fit`) predicts the latent f in raw units;
the scikit-learn estimators standardise inside and predict observations. Names load with their modules when
first used; `__init__.pyi` lists these.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# the public names and their homes, from the lines "from .home import thing as name" of __init__.pyi
_LINES = __loader__.get_data(f"{__file__}i").decode().splitlines()  # type: ignore[name-defined]
_HOMES = {line.split()[5]: line.split()[1:4:2] for line in _LINES if line.startswith("from .")}
# modules of the classes that a model file may hold; nothing else in a file is ever imported
_KINDS = "Posterior NeighboursPredictor SparseGPRegressor SparseGPClassifier OnlineGPRegressor GPDensity"
SAVED = {name: _HOMES[name][0].removeprefix(".") for name in _KINDS.split()}
# the module of those classes that can also be loaded for predictions alone
SAVED_LIGHT = dict.fromkeys(
    ("SparseGPRegressor", "SparseGPClassifier", "OnlineGPRegressor"), "estimators.light"
)
_OPTIONAL = {"river": "estimators.river"}  # modules that need a package of their name
EXTRAS = {  # packages that the core does not need, by the extra that installs them
    "cli": "rich typer pandas pyarrow narwhals",
    "plot": "matplotlib",
    "dask": "dask distributed zarr",
    "gpu": "torch",
    "river": "river",
    "export": "onnx onnxruntime",
}

# methods outside the table of approximations, and the modules whose `condition` makes their predictors
BESIDE = dict.fromkeys(("bcm", "rbcm", "gpoe", "poe"), "beside.committee")
BESIDE |= {"nystrom": "beside.nystrom", "asor": "beside.augmentation"}

__all__ = ["__version__", *_HOMES]


def package(name: str) -> Any:
    """Import a package of an extra, or a module of it; if missing, raise with the command to install it."""
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
    if name in _OPTIONAL:
        package(name)
        return import_module(f"{__name__}.{_OPTIONAL[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, thing = _HOMES[name]
    value = None if home == "." else getattr(import_module(home, __name__), thing, None)
    return import_module(f"{home.rstrip('.')}.{thing}", __name__) if value is None else value


def __dir__() -> list[str]:
    return sorted(__all__)
