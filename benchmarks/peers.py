"""One small adapter per library, through its public interface alone: this package and its peers.

An adapter offers what its library offers, all in float64 and with the same parameters:

    gradient(data, row)   a function that computes the log evidence and its gradient in everything (basis,
                          lengthscale of each input, variance, noise) and returns the evidence
    predictor(data, row)  a function of X (n, d) that returns mean and variance of f
    fit_small(data)       fits everything from the given start to convergence; returns a predicting function

Each library runs in a process of its own (see worker.py) and is imported only there, with all cores to
itself. A library that is not installed is missing from the tables; what it does not offer is, too.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from problems import Data

JITTER = 1e-6  # the default of most peers, set in all that let one
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

Predictor = Callable[[np.ndarray], tuple[Any, Any]]


class Library:
    """What an adapter may offer; `rows` are those whose value and gradient it has, `value_only` those without
    gradient.
    """

    package = ""
    rows: tuple[str, ...] = ()
    value_only: tuple[str, ...] = ()
    predicts: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.module = importlib.import_module(self.package)
        self.version = getattr(self.module, "__version__", "?")

    def gradient(self, data: Data, row: str) -> Callable[[], float]:
        raise NotImplementedError

    def predictor(self, data: Data, row: str) -> Predictor:
        return self._predict(self._model(data, row))

    def fit_small(self, data: Data) -> Predictor:
        raise NotImplementedError

    def _model(self, data: Data, row: str) -> Any:
        raise NotImplementedError

    def _predict(self, model: Any) -> Predictor:
        raise NotImplementedError


class Inducing(Library):
    package = "inducing"
    rows = ("vfe", "fitc", "dtc", "pitc", "multiscale vfe", "multiscale fitc")
    predicts = ("vfe", "fitc", "multiscale vfe")

    def _problem(self, data: Data, row: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        ig = self.module
        *multiscale, name = row.split()
        widths = np.broadcast_to(1.1 * data.lengthscale, data.Z.shape)
        basis = ig.bases.Multiscale(data.Z, widths) if multiscale else ig.bases.Points(data.Z)
        options: dict[str, Any] = {"jitter": JITTER / data.variance}
        if name == "pitc":
            options["blocks"] = np.arange(len(data.X)) // len(data.Z)
        return (
            ig.kernels.RBF(data.lengthscale, data.variance),
            basis,
            name,
            data.noise,
            data.X,
            data.y,
        ), options

    def gradient(self, data: Data, row: str) -> Callable[[], float]:
        ig = self.module
        arguments, options = self._problem(data, row)
        return lambda: ig.log_evidence_and_gradient(*arguments, **options)[0]

    def predictor(self, data: Data, row: str) -> Predictor:
        ig = self.module
        arguments, options = self._problem(data, row)
        return ig.condition(*arguments, **options).predict

    def compiled(self, data: Data) -> Callable[[np.ndarray], tuple[float, float]]:
        ig = self.module
        arguments, options = self._problem(data, "vfe")
        return ig.condition(*arguments, **options).compile()

    def fit_small(self, data: Data) -> Predictor:
        ig = self.module
        arguments, _ = self._problem(data, "vfe")
        return ig.fit(*arguments).posterior.predict


class Torch(Library):
    """What GPyTorch and Pyro share: modules with parameters, and a loss to differentiate."""

    def __init__(self) -> None:
        super().__init__()
        import torch

        torch.set_num_threads(CORES)
        torch.set_default_dtype(torch.float64)

    def _loss(self, model: Any) -> tuple[Callable[[], Any], float]:
        """The loss, and what to multiply it with to have the log evidence."""
        raise NotImplementedError

    def gradient(self, data: Data, row: str) -> Callable[[], float]:
        model = self._model(data, row)
        loss, factor = self._loss(model)

        def call() -> float:
            model.zero_grad()
            value = loss()
            value.backward()
            return factor * float(value.detach())

        return call

    def fit_small(self, data: Data) -> Predictor:
        """By PyTorch's own L-BFGS with a strong Wolfe search, and as many iterations as this package allows
        itself.
        """
        import torch

        model = self._model(data, "vfe")
        loss, _ = self._loss(model)
        optimizer = torch.optim.LBFGS(
            model.parameters(),
            max_iter=200,
            tolerance_grad=1e-5,
            tolerance_change=1e-8,
            history_size=20,
            line_search_fn="strong_wolfe",
        )

        def closure() -> Any:
            optimizer.zero_grad()
            value = loss()
            value.backward()
            return value

        optimizer.step(closure)
        return self._predict(model)


class GPyTorch(Torch):
    """SGPR: ExactGP with an InducingPointKernel (Woodbury, no conjugate gradients). It predicts as FITC does,
    by default.
    """

    package = "gpytorch"
    rows = ("vfe",)
    predicts = ("fitc",)

    def _model(self, data: Data, row: str) -> Any:
        import torch

        gp = self.module
        X, y, Z = map(torch.from_numpy, (data.X, data.y, data.Z.copy()))

        class Model(gp.models.ExactGP):
            def __init__(self, likelihood: Any) -> None:
                super().__init__(X, y, likelihood)
                self.mean_module = gp.means.ZeroMean()
                base = gp.kernels.ScaleKernel(gp.kernels.RBFKernel(ard_num_dims=X.shape[1]))
                self.covar_module = gp.kernels.InducingPointKernel(
                    base, inducing_points=Z, likelihood=likelihood
                )

            def forward(self, x: Any) -> Any:
                return gp.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        likelihood = gp.likelihoods.GaussianLikelihood().double()
        model = Model(likelihood).double()
        base = model.covar_module.base_kernel
        base.base_kernel.lengthscale = torch.from_numpy(data.lengthscale)
        base.outputscale, likelihood.noise = data.variance, data.noise
        return model

    def _loss(self, model: Any) -> tuple[Callable[[], Any], float]:
        gp = self.module
        model.train()
        X, y = model.train_inputs[0], model.train_targets
        objective = gp.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        return lambda: -objective(model(X), y), -len(X)

    def _predict(self, model: Any) -> Predictor:
        import torch

        gp = self.module
        model.eval()

        def predict(X: np.ndarray) -> tuple[Any, Any]:
            with torch.no_grad(), gp.settings.fast_pred_var():
                f = model(torch.from_numpy(X))
                return f.mean.numpy(), f.variance.numpy()

        return predict


class Pyro(Torch):
    """contrib.gp.models.SparseGPRegression, the loss differentiated as its own `train` does."""

    package = "pyro"
    rows = ("vfe", "fitc", "dtc")
    predicts = ("vfe", "fitc")

    def _model(self, data: Data, row: str) -> Any:
        import pyro
        import pyro.contrib.gp as gp
        import torch

        pyro.clear_param_store()
        X, y, Z, scales = map(torch.from_numpy, (data.X, data.y, data.Z.copy(), data.lengthscale.copy()))
        kernel = gp.kernels.RBF(X.shape[1], torch.tensor(data.variance), scales)
        noise = torch.tensor(data.noise)
        return gp.models.SparseGPRegression(X, y, kernel, Z, noise, approx=row.upper(), jitter=JITTER)

    def _loss(self, model: Any) -> tuple[Callable[[], Any], float]:
        from pyro.infer import TraceMeanField_ELBO

        objective = TraceMeanField_ELBO().differentiable_loss
        return lambda: objective(model.model, model.guide), -1.0

    def _predict(self, model: Any) -> Predictor:
        import torch

        def predict(X: np.ndarray) -> tuple[Any, Any]:
            with torch.no_grad():
                mean, variance = model(torch.from_numpy(X), full_cov=False, noiseless=True)
                return mean.numpy(), variance.numpy()

        return predict


class GPflow(Library):
    """SGPR and GPRFITC, compiled by tf.function; SGPR predicts from its cached posterior."""

    package = "gpflow"
    rows = predicts = ("vfe", "fitc")

    def __init__(self) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
        super().__init__()
        import tensorflow as tf

        gpflow = self.module
        tf.config.threading.set_intra_op_parallelism_threads(CORES)
        gpflow.config.set_default_jitter(JITTER)

    def _model(self, data: Data, row: str) -> Any:
        gpflow = self.module
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

    def _predict(self, model: Any) -> Predictor:
        import tensorflow as tf

        source = model.posterior() if hasattr(model, "posterior") else model
        function = tf.function(source.predict_f)

        def predict(X: np.ndarray) -> tuple[Any, Any]:
            mean, variance = function(tf.constant(X))
            return mean.numpy()[:, 0], variance.numpy()[:, 0]

        return predict

    def fit_small(self, data: Data) -> Predictor:
        gpflow = self.module
        model = self._model(data, "vfe")
        gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
        return self._predict(model)


class GPJax(Library):
    """CollapsedVariationalGaussian and collapsed_elbo under jit, in double precision."""

    package = "gpjax"
    rows = predicts = ("vfe",)

    def __init__(self) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        super().__init__()

    def _model(self, data: Data, row: str) -> tuple[Any, Any]:
        import jax.numpy as jnp

        gpx = self.module
        X, y, Z, scales = map(jnp.asarray, (data.X, data.y[:, None], data.Z, data.lengthscale))
        kernel = gpx.kernels.RBF(lengthscale=scales, variance=data.variance)
        prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=kernel, jitter=JITTER)
        likelihood = gpx.likelihoods.Gaussian(obs_stddev=jnp.sqrt(data.noise))
        family = gpx.variational_families.CollapsedVariationalGaussian(
            model=prior * likelihood, inducing_inputs=Z
        )
        return family, gpx.Dataset(X=X, y=y)

    def gradient(self, data: Data, row: str) -> Callable[[], float]:
        import equinox as eqx
        import jax

        gpx = self.module
        family, rows = self._model(data, "vfe")
        both = eqx.filter_jit(eqx.filter_value_and_grad(gpx.objectives.collapsed_elbo))
        return lambda: float(jax.block_until_ready(both(family, rows))[0])

    def _predict(self, model: tuple[Any, Any]) -> Predictor:
        import equinox as eqx
        import jax.numpy as jnp

        posterior = eqx.filter_jit(lambda family, rows: family.condition(rows))(*model)

        @eqx.filter_jit
        def function(posterior: Any, X: Any) -> Any:
            f = posterior(X, covariance="diagonal")
            return f.mean, f.variance

        def predict(X: np.ndarray) -> tuple[Any, Any]:
            mean, variance = function(posterior, jnp.asarray(X))
            return np.asarray(mean), np.asarray(variance)

        return predict

    def fit_small(self, data: Data) -> Predictor:
        gpx = self.module
        family, rows = self._model(data, "vfe")

        def loss(family: Any, rows: Any) -> Any:
            return -gpx.objectives.collapsed_elbo(family, rows)

        family, _ = gpx.fit_scipy(model=family, objective=loss, train_data=rows, verbose=False)
        return self._predict((family, rows))


class GPy(Library):
    """SparseGPRegression with VarDTC, and with FITC; parameters move by 1e-12 so that nothing is taken from a
    cache.
    """

    package = "GPy"
    rows = predicts = ("vfe", "fitc")

    def _model(self, data: Data, row: str) -> Any:
        GPy = self.module
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
            return float(np.squeeze(model.log_likelihood()))

        return call

    def _predict(self, model: Any) -> Predictor:
        def predict(X: np.ndarray) -> tuple[Any, Any]:
            mean, variance = model.predict_noiseless(X)
            return mean[:, 0], variance[:, 0]

        return predict

    def fit_small(self, data: Data) -> Predictor:
        model = self._model(data, "vfe")
        model.optimize(messages=False)
        return self._predict(model)


class GPBoost(Library):
    """FITC on inducing points of its own choice, which it does not move; its public interface has no
    gradient.
    """

    package = "gpboost"
    value_only = predicts = ("fitc",)

    def _model(self, data: Data, row: str) -> tuple[Any, dict[str, Any]]:
        gpboost = self.module
        model = gpboost.GPModel(
            gp_coords=data.X,
            cov_function="gaussian_ard",
            gp_approx="fitc",
            likelihood="gaussian",
            num_ind_points=len(data.Z),
            num_parallel_threads=CORES,
        )
        parameters = np.array(
            [data.noise, data.variance, *(np.sqrt(2) * data.lengthscale)]
        )  # exp(-(x - z)²/ρ²)
        return model, {"cov_pars": parameters, "y": data.y}

    def gradient(self, data: Data, row: str) -> Callable[[], float]:
        model, given = self._model(data, row)
        return lambda: -float(model.neg_log_likelihood(**given))

    def _predict(self, model: tuple[Any, dict[str, Any]]) -> Predictor:
        fitted, given = model

        def predict(X: np.ndarray) -> tuple[Any, Any]:
            f = fitted.predict(gp_coords_pred=X, predict_var=True, predict_response=False, **given)
            return f["mu"], f["var"]

        return predict

    def fit_small(self, data: Data) -> Predictor:
        model, given = self._model(data, "fitc")
        model.fit(y=data.y, params={"init_cov_pars": given["cov_pars"], "trace": False})
        return self._predict((model, {}))


class Egobox(Library):
    """SparseGpx: only fits, by derivative-free search over the kernel's parameters and the noise; the basis
    stays.
    """

    package = "egobox"

    def fit_small(self, data: Data) -> Predictor:
        egobox = self.module
        theta = (0.5 / data.lengthscale**2).tolist()  # exp(-theta (x - z)²)
        builder = egobox.SparseGpx.builder(
            theta_init=theta, theta_n_start=1, inducing=data.Z, method=egobox.SparseMethod.VFE, seed=0
        )
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
    OURS: Inducing,
    "GPyTorch": GPyTorch,
    "GPflow": GPflow,
    "GPJax": GPJax,
    "GPy": GPy,
    "Pyro": Pyro,
    "GPBoost": GPBoost,
    "egobox": Egobox,
    "scikit-learn": ScikitLearn,
}
