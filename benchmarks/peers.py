"""One small adapter per library, through its public interface alone: this package, its peers, and the data they share.

An adapter offers what its library offers, all in float64 and with the same parameters:

    gradient(data, row)   a function that computes the log evidence and its gradient in everything (basis, lengthscale of each
                          input, variance, noise) and returns the evidence
    predictor(data, row)  a function of X (n, d) that returns mean and variance of f
    fit_small(data)       fits everything from the given start to convergence; returns the function that predicts

Each library runs in a process of its own (see worker.py) and is imported only there, with all cores to itself. A library
that is not installed is missing from the tables; what it does not offer is, too.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

JITTER = 1e-6  # the default of most peers, set in all that let one
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

Predictor = Callable[[np.ndarray], tuple[Any, Any]]


@dataclass(frozen=True)
class Data:
    """A regression problem and the parameters at which everyone evaluates it."""

    X: np.ndarray  # (n, d)
    y: np.ndarray  # (n,)
    Z: np.ndarray  # (m, d)
    lengthscale: np.ndarray  # (d,)
    variance: float
    noise: float

    @property
    def checksum(self) -> float:
        return float(self.X.sum() + self.y.sum() + self.Z.sum())


def make(n: int, m: int, d: int) -> Data:
    """Standard normal inputs, a smooth function of two of them, noise; the basis is m of the rows."""
    r = np.random.default_rng(n + 7 * m + d)
    X = r.standard_normal((n, d))
    y = np.sin(X[:, 0]) + 0.5 * X[:, -1] ** 2 + 0.15 * r.standard_normal(n)
    return Data(X, y, X[r.permutation(n)[:m]].copy(), np.full(d, 0.7 * np.sqrt(d)), 1.4, 0.02)


def make_small(n: int = 500, m: int = 20) -> Data:
    """The cold start's curve: one input, a wave, a start that is off."""
    r = np.random.default_rng(0)
    X = r.uniform(0, 10, (n, 1))
    y = curve(X) + 0.2 * r.standard_normal(n)
    return Data(X, y, np.linspace(0.25, 9.75, m)[:, None], np.ones(1), 1.0, 0.1)


def curve(X: np.ndarray) -> np.ndarray:
    return np.sin(2 * X[:, 0]) + 0.5 * np.cos(3.1 * X[:, 0])


class Library:
    """What an adapter may offer; `rows` are those whose value and gradient it has, `value_only` those without gradient."""

    package = ""
    rows: tuple[str, ...] = ()
    value_only: tuple[str, ...] = ()
    predicts: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.version = getattr(importlib.import_module(self.package), "__version__", "?")

    def gradient(self, data: Data, row: str) -> Callable[[], float]:
        raise NotImplementedError

    def predictor(self, data: Data, row: str) -> Predictor:
        raise NotImplementedError

    def fit_small(self, data: Data) -> Predictor:
        raise NotImplementedError


class Inducing(Library):
    package = "inducing"
    rows = ("vfe", "fitc", "pitc", "multiscale vfe", "multiscale fitc")
    predicts = ("vfe", "fitc", "multiscale vfe")

    def _problem(self, data: Data, row: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        import inducing as ig

        *multiscale, name = row.split()
        widths = np.broadcast_to(1.1 * data.lengthscale, data.Z.shape)
        basis = ig.bases.Multiscale(data.Z, widths) if multiscale else ig.bases.Points(data.Z)
        options: dict[str, Any] = {"jitter": JITTER / data.variance}
        if name == "pitc":
            options["blocks"] = np.arange(len(data.X)) // len(data.Z)
        return (ig.kernels.RBF(data.lengthscale, data.variance), basis, name, data.noise, data.X, data.y), options

    def gradient(self, data: Data, row: str) -> Callable[[], float]:
        import inducing as ig

        arguments, options = self._problem(data, row)
        return lambda: ig.log_evidence_and_gradient(*arguments, **options)[0]

    def predictor(self, data: Data, row: str) -> Predictor:
        import inducing as ig

        arguments, options = self._problem(data, row)
        return ig.condition(*arguments, **options).predict

    def compiled(self, data: Data) -> Callable[[np.ndarray], tuple[float, float]]:
        import inducing as ig

        arguments, options = self._problem(data, "vfe")
        return ig.condition(*arguments, **options).compile()

    def fit_small(self, data: Data) -> Predictor:
        import inducing as ig

        arguments, _ = self._problem(data, "vfe")
        return ig.fit(*arguments).posterior.predict


class GPyTorch(Library):
    """SGPR: ExactGP with an InducingPointKernel; Woodbury throughout, no conjugate gradients."""

    package = "gpytorch"
    rows = predicts = ("vfe",)

    def __init__(self) -> None:
        super().__init__()
        _torch()

    def _model(self, data: Data) -> tuple[Any, Any, Any]:
        import gpytorch as gp
        import torch

        X, y, Z = map(torch.from_numpy, (data.X, data.y, data.Z.copy()))

        class Model(gp.models.ExactGP):
            def __init__(self, likelihood: Any) -> None:
                super().__init__(X, y, likelihood)
                self.mean_module = gp.means.ZeroMean()
                base = gp.kernels.ScaleKernel(gp.kernels.RBFKernel(ard_num_dims=X.shape[1]))
                self.covar_module = gp.kernels.InducingPointKernel(base, inducing_points=Z, likelihood=likelihood)

            def forward(self, x: Any) -> Any:
                return gp.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        likelihood = gp.likelihoods.GaussianLikelihood().double()
        model = Model(likelihood).double()
        base = model.covar_module.base_kernel
        base.base_kernel.lengthscale = torch.from_numpy(data.lengthscale)
        base.outputscale, likelihood.noise = data.variance, data.noise
        return model, X, y

    def _loss(self, data: Data) -> tuple[Any, Callable[[], Any]]:
        import gpytorch as gp

        model, X, y = self._model(data)
        model.train()
        objective = gp.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        return model, lambda: -objective(model(X), y)  # per row

    def gradient(self, data: Data, row: str) -> Callable[[], float]:
        model, loss = self._loss(data)
        return _backward(model, loss, -len(data.X))

    def _predict(self, model: Any) -> Predictor:
        import gpytorch as gp
        import torch

        model.eval()

        def predict(X: np.ndarray) -> tuple[Any, Any]:
            with torch.no_grad(), gp.settings.fast_pred_var():
                f = model(torch.from_numpy(X))
                return f.mean.numpy(), f.variance.numpy()

        return predict

    def predictor(self, data: Data, row: str) -> Predictor:
        return self._predict(self._model(data)[0])

    def fit_small(self, data: Data) -> Predictor:
        model, loss = self._loss(data)
        _lbfgs(model, loss)
        return self._predict(model)


class Pyro(Library):
    """contrib.gp.models.SparseGPRegression, the loss differentiated as its own `train` does."""

    package = "pyro"
    rows = predicts = ("vfe", "fitc", "dtc")

    def __init__(self) -> None:
        super().__init__()
        _torch()

    def _model(self, data: Data, row: str) -> tuple[Any, Callable[[], Any]]:
        import pyro
        import pyro.contrib.gp as gp
        import torch
        from pyro.infer import TraceMeanField_ELBO

        pyro.clear_param_store()
        X, y, Z, scales = map(torch.from_numpy, (data.X, data.y, data.Z.copy(), data.lengthscale.copy()))
        kernel = gp.kernels.RBF(X.shape[1], torch.tensor(data.variance, dtype=X.dtype), scales)
        noise = torch.tensor(data.noise, dtype=X.dtype)
        model = gp.models.SparseGPRegression(X, y, kernel, Z, noise, approx=row.upper(), jitter=JITTER)
        objective = TraceMeanField_ELBO().differentiable_loss
        return model, lambda: objective(model.model, model.guide)

    def gradient(self, data: Data, row: str) -> Callable[[], float]:
        return _backward(*self._model(data, row), -1)

    def _predict(self, model: Any) -> Predictor:
        import torch

        def predict(X: np.ndarray) -> tuple[Any, Any]:
            with torch.no_grad():
                mean, variance = model(torch.from_numpy(X), full_cov=False, noiseless=True)
                return mean.numpy(), variance.numpy()

        return predict

    def predictor(self, data: Data, row: str) -> Predictor:
        return self._predict(self._model(data, row)[0])

    def fit_small(self, data: Data) -> Predictor:
        model, loss = self._model(data, "vfe")
        _lbfgs(model, loss)
        return self._predict(model)


class GPflow(Library):
    """SGPR and GPRFITC, compiled by tf.function; SGPR predicts from its cached posterior."""

    package = "gpflow"
    rows = predicts = ("vfe", "fitc")

    def __init__(self) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
        super().__init__()
        import gpflow
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(CORES)
        gpflow.config.set_default_jitter(JITTER)

    def _model(self, data: Data, row: str) -> Any:
        import gpflow

        kernel = gpflow.kernels.SquaredExponential(variance=data.variance, lengthscales=data.lengthscale)
        kind = {"vfe": gpflow.models.SGPR, "fitc": gpflow.models.GPRFITC}[row]
        return kind((data.X, data.y[:, None]), kernel, data.Z.copy(), noise_variance=data.noise)

    def gradient(self, data: Data, row: str) -> Callable[[], float]:
        import tensorflow as tf

        model = self._model(data, row)

        @tf.function
        def both() -> Any:
            with tf.GradientTape() as tape:
                loss = model.training_loss()
            return loss, tape.gradient(loss, model.trainable_variables)

        def call() -> float:
            loss, gradients = both()
            _ = [g.numpy() for g in gradients]
            return -float(loss)

        return call

    def _predict(self, model: Any, row: str) -> Predictor:
        import tensorflow as tf

        source = model.posterior() if row == "vfe" else model
        function = tf.function(source.predict_f)

        def predict(X: np.ndarray) -> tuple[Any, Any]:
            mean, variance = function(tf.constant(X))
            return mean.numpy()[:, 0], variance.numpy()[:, 0]

        return predict

    def predictor(self, data: Data, row: str) -> Predictor:
        return self._predict(self._model(data, row), row)

    def fit_small(self, data: Data) -> Predictor:
        import gpflow

        model = self._model(data, "vfe")
        gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
        return self._predict(model, "vfe")


class GPJax(Library):
    """CollapsedVariationalGaussian and collapsed_elbo under jit, in double precision."""

    package = "gpjax"
    rows = predicts = ("vfe",)

    def __init__(self) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        super().__init__()

    def _model(self, data: Data) -> tuple[Any, Any]:
        import gpjax as gpx

        kernel = gpx.kernels.RBF(lengthscale=data.lengthscale, variance=data.variance)
        prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=kernel, jitter=JITTER)
        likelihood = gpx.likelihoods.Gaussian(obs_stddev=np.sqrt(data.noise))
        family = gpx.variational_families.CollapsedVariationalGaussian(model=prior * likelihood, inducing_inputs=data.Z)
        return family, gpx.Dataset(X=data.X, y=data.y[:, None])

    def gradient(self, data: Data, row: str) -> Callable[[], float]:
        import equinox as eqx
        import gpjax as gpx
        import jax

        family, rows = self._model(data)
        both = eqx.filter_jit(eqx.filter_value_and_grad(gpx.objectives.collapsed_elbo))
        return lambda: float(jax.block_until_ready(both(family, rows))[0])

    def _predict(self, family: Any, rows: Any) -> Predictor:
        import equinox as eqx

        posterior = eqx.filter_jit(lambda f, r: f.condition(r))(family, rows)

        @eqx.filter_jit
        def function(posterior: Any, X: Any) -> Any:
            f = posterior(X, covariance="diagonal")
            return f.mean, f.variance

        def predict(X: np.ndarray) -> tuple[Any, Any]:
            mean, variance = function(posterior, X)
            return np.asarray(mean), np.asarray(variance)

        return predict

    def predictor(self, data: Data, row: str) -> Predictor:
        return self._predict(*self._model(data))

    def fit_small(self, data: Data) -> Predictor:
        import gpjax as gpx

        family, rows = self._model(data)

        def loss(family: Any, rows: Any) -> Any:
            return -gpx.objectives.collapsed_elbo(family, rows)

        family, _ = gpx.fit_scipy(model=family, objective=loss, train_data=rows, verbose=False)
        return self._predict(family, rows)


class GPy(Library):
    """SparseGPRegression with VarDTC, and with FITC; parameters move by 1e-12 so that nothing is taken from a cache."""

    package = "GPy"
    rows = predicts = ("vfe", "fitc")

    def _model(self, data: Data, row: str) -> Any:
        import GPy

        kernel = GPy.kern.RBF(data.X.shape[1], variance=data.variance, lengthscale=data.lengthscale, ARD=True)
        model = GPy.models.SparseGPRegression(data.X, data.y[:, None], kernel, Z=data.Z.copy())
        model.likelihood.variance = data.noise
        if row == "fitc":
            model.inference_method = GPy.inference.latent_function_inference.FITC()
            model.trigger_update()
        return model

    def gradient(self, data: Data, row: str) -> Callable[[], float]:
        model = self._model(data, row)
        start, calls = model.optimizer_array.copy(), [0]

        def call() -> float:
            calls[0] += 1
            model.optimizer_array = start * (1 + 1e-12 * calls[0])
            model.objective_function_gradients()
            return float(model.log_likelihood())

        return call

    def _predict(self, model: Any) -> Predictor:
        def predict(X: np.ndarray) -> tuple[Any, Any]:
            mean, variance = model.predict_noiseless(X)
            return mean[:, 0], variance[:, 0]

        return predict

    def predictor(self, data: Data, row: str) -> Predictor:
        return self._predict(self._model(data, row))

    def fit_small(self, data: Data) -> Predictor:
        model = self._model(data, "vfe")
        model.optimize(messages=False)
        return self._predict(model)


class GPBoost(Library):
    """FITC on inducing points of its own choice, which it does not move; its public interface has no gradient."""

    package = "gpboost"
    value_only = predicts = ("fitc",)

    def _model(self, data: Data) -> tuple[Any, np.ndarray]:
        import gpboost

        model = gpboost.GPModel(gp_coords=data.X, cov_function="gaussian_ard", gp_approx="fitc", likelihood="gaussian",
                                num_ind_points=len(data.Z), num_parallel_threads=CORES)  # fmt: skip
        return model, np.array([data.noise, data.variance, *(np.sqrt(2) * data.lengthscale)])  # exp(-(x - z)²/ρ²)

    def gradient(self, data: Data, row: str) -> Callable[[], float]:
        model, parameters = self._model(data)
        return lambda: -float(model.neg_log_likelihood(cov_pars=parameters, y=data.y))

    def _predict(self, model: Any, **options: Any) -> Predictor:
        def predict(X: np.ndarray) -> tuple[Any, Any]:
            f = model.predict(gp_coords_pred=X, predict_var=True, predict_response=False, **options)
            return f["mu"], f["var"]

        return predict

    def predictor(self, data: Data, row: str) -> Predictor:
        model, parameters = self._model(data)
        return self._predict(model, cov_pars=parameters, y=data.y)

    def fit_small(self, data: Data) -> Predictor:
        model, parameters = self._model(data)
        model.fit(y=data.y, params={"init_cov_pars": parameters, "trace": False})
        return self._predict(model)


class Egobox(Library):
    """SparseGpx: only fits, by derivative-free search over the kernel's parameters and the noise; the basis stays."""

    package = "egobox"

    def fit_small(self, data: Data) -> Predictor:
        import egobox

        theta = (0.5 / data.lengthscale**2).tolist()  # exp(-theta (x - z)²)
        builder = egobox.SparseGpx.builder(theta_init=theta, theta_n_start=1, inducing=data.Z,
                                           method=egobox.SparseMethod.VFE, seed=0)  # fmt: skip
        model = builder.fit(data.X, data.y)
        return lambda X: (model.predict(X), model.predict_var(X))


class ScikitLearn(Library):
    """The exact GP, for the small problem alone."""

    package = "sklearn"

    def fit_small(self, data: Data) -> Predictor:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        kernel = ConstantKernel(data.variance) * RBF(data.lengthscale) + WhiteKernel(data.noise)
        model = GaussianProcessRegressor(kernel).fit(data.X, data.y)
        return lambda X: model.predict(X, return_std=True)


OURS = "inducing"
LIBRARIES: dict[str, type[Library]] = {
    OURS: Inducing, "GPyTorch": GPyTorch, "GPflow": GPflow, "GPJax": GPJax, "GPy": GPy, "Pyro": Pyro, "GPBoost": GPBoost,
    "egobox": Egobox, "scikit-learn": ScikitLearn,
}  # fmt: skip


def _torch() -> None:
    import torch

    torch.set_num_threads(CORES)
    torch.set_default_dtype(torch.float64)


def _backward(model: Any, loss: Callable[[], Any], factor: float) -> Callable[[], float]:
    def call() -> float:
        model.zero_grad()
        value = loss()
        value.backward()
        return factor * float(value.detach())

    return call


def _lbfgs(model: Any, loss: Callable[[], Any]) -> None:
    """PyTorch's own L-BFGS with a strong Wolfe search, as many iterations as this package allows itself."""
    import torch

    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=200, tolerance_grad=1e-5, tolerance_change=1e-8,
                                  history_size=20, line_search_fn="strong_wolfe")  # fmt: skip

    def closure() -> Any:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)
