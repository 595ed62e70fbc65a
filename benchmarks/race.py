"""Training against the clock: kin-40k, this package's default settings in a third of the time that two peers
have.

    INDUCING_DATA=folder python benchmarks/race.py --peer-python A/bin/python B/bin/python   # 15 minutes
    INDUCING_DATA=folder python benchmarks/race.py --m 64 ...                                # 5 minutes

The peers start from random rows as inducing inputs. Each is alone on the machine and ended by the clock, this
package by the Ctrl-C that a user would press. Test error (SMSE) and log loss (MSLL) are of what each then
has. Writes a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

FINISHING = (
    5.0  # seconds after Ctrl-C in which a fit judges its stages, conditions on all rows and makes its report
)
PEERS = {"GPflow": ("gpflow", "SGPR, L-BFGS"), "GPyTorch": ("gpytorch", "SGPR, Adam")}


def gpflow(
    X: np.ndarray, y: np.ndarray, Z: np.ndarray, X_test: np.ndarray, seconds: float
) -> tuple[np.ndarray, np.ndarray]:
    """Titsias' bound by SciPy's L-BFGS-B, as in GPflow's own examples."""
    import gpflow as gf

    kernel = gf.kernels.SquaredExponential(lengthscales=np.ones(X.shape[1]))
    model = gf.models.SGPR((X, y[:, None]), kernel, inducing_variable=Z, noise_variance=0.1)
    began = time.perf_counter()

    class Over(Exception):
        pass

    def clock(*_: object) -> None:
        if time.perf_counter() - began > seconds:
            raise Over

    try:
        gf.optimizers.Scipy().minimize(
            model.training_loss, model.trainable_variables, step_callback=clock, options={"maxiter": 100_000}
        )
    except Over:
        pass
    parts = [model.predict_y(rows) for rows in np.array_split(X_test, 10)]
    return tuple(np.concatenate([part[i].numpy()[:, 0] for part in parts]) for i in (0, 1))  # type: ignore[return-value]


def gpytorch(
    X: np.ndarray, y: np.ndarray, Z: np.ndarray, X_test: np.ndarray, seconds: float
) -> tuple[np.ndarray, np.ndarray]:
    """Titsias' bound by Adam with a step of 0.05 in double precision."""
    import gpytorch as gp
    import torch

    torch.set_default_dtype(torch.float64)
    inputs, targets = torch.from_numpy(X), torch.from_numpy(y)

    class SGPR(gp.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(inputs, targets, gp.likelihoods.GaussianLikelihood())
            self.mean_module = gp.means.ZeroMean()
            inside = gp.kernels.ScaleKernel(gp.kernels.RBFKernel(ard_num_dims=X.shape[1]))
            inside.base_kernel.lengthscale, inside.outputscale = 1.0, 1.0
            self.covar_module = gp.kernels.InducingPointKernel(
                inside, torch.from_numpy(Z.copy()), self.likelihood
            )
            self.likelihood.noise = 0.1

        def forward(self, x: torch.Tensor) -> gp.distributions.MultivariateNormal:
            return gp.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = SGPR()
    bound = gp.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    adam = torch.optim.Adam(model.parameters(), lr=0.05)
    model.train()
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        adam.zero_grad()
        loss = -bound(model(inputs), targets)
        loss.backward()
        adam.step()
    model.eval()
    means, variances = [], []
    with torch.no_grad():
        for rows in np.array_split(X_test, 30):
            found = model.likelihood(model(torch.from_numpy(rows)))
            means.append(found.mean.numpy())
            variances.append(found.variance.numpy())
    return np.concatenate(means), np.concatenate(variances)


def work(name: str, file: str, m: int, seconds: float) -> None:
    """In the peer's own process: read the data, train, write mean and variance back."""
    with np.load(file) as data:
        X, y, X_test = data["X"], data["y"], data["X_test"]
    Z = X[np.random.default_rng(0).permutation(len(X))[:m]]
    warnings.simplefilter("ignore")
    mean, variance = {"GPflow": gpflow, "GPyTorch": gpytorch}[name](X, y, Z, X_test, seconds)
    np.savez(file + ".found.npz", mean=mean, variance=variance)


def ours(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, m: int, seconds: float
) -> tuple[np.ndarray, np.ndarray, float, int]:
    """The estimator as it comes, interrupted by the clock."""
    import _thread
    import signal
    import threading

    import inducing as ig

    model = ig.SparseGPRegressor(n_inducing=m, random_state=0)
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # shells have processes in the background ignore it
    timer = threading.Timer(max(1.0, seconds - FINISHING), _thread.interrupt_main)
    began = time.perf_counter()
    timer.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
    finally:
        timer.cancel()
    taken = time.perf_counter() - began
    mean, std = model.predict(X_test, return_std=True)
    return mean, std**2, taken, model.n_iter_


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--m", type=int, nargs="+", default=[64, 256, 512])
    parser.add_argument("--seconds", type=float, default=120.0, help="of the peers; this package has a third")
    parser.add_argument(
        "--peer-python", nargs="*", default=[], help="interpreters of environments with peers"
    )
    parser.add_argument("--only-ours", action="store_true")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        name, file, m, seconds = given.worker
        return work(name, file, int(m), float(seconds))
    import inducing as ig

    data = ig.datasets.load("kin40k")
    X, y, X_test, y_test = data.X_train, data.y_train, data.X_test, data.y_test
    pythons = {}
    for python in [] if given.only_ours else [sys.executable, *given.peer_python]:
        code = "import importlib.util as u, json; "
        code += f"print(json.dumps([n for n in {list(PEERS)} if u.find_spec(n.lower())]))"
        for name in json.loads(
            subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
        ):
            pythons.setdefault(name, python)
    print("| m | who | seconds | SMSE | MSLL |\n|---|---|---|---|---|", flush=True)

    def show(m: int, who: str, seconds: float, mean: np.ndarray, variance: np.ndarray) -> None:
        smse, msll = ig.metrics.smse(y_test, mean, y), ig.metrics.msll(y_test, mean, variance, y)
        print(f"| {m} | {who} | {seconds:.0f} | {smse:.4f} | {msll:.3f} |", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "data.npz")
        np.savez(file, X=X, y=y, X_test=X_test)
        for m in given.m:
            for name, python in pythons.items():
                command = [python, __file__, "--worker", name, file, str(m), str(given.seconds)]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                with np.load(file + ".found.npz") as found:
                    show(m, f"{name} {PEERS[name][1]}", given.seconds, found["mean"], found["variance"])
            mean, variance, taken, iterations = ours(X, y, X_test, m, given.seconds / 3.0)
            show(m, f"**inducing**, defaults ({iterations} iterations)", taken, mean, variance)


if __name__ == "__main__":
    main()
