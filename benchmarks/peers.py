"""Adapters of this package and its peers; library.py says what an adapter is."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from library import CORES, JITTER, Library, Predictor
from problems import Data
from torch_peers import GPyTorch, Pyro


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
