"""Adapters of the peers that stand on PyTorch; library.py says what an adapter is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from library import CORES, JITTER, Library, Predictor
from problems import Data


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
