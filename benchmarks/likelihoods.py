"""Classes beside other classifiers: error, log loss and seconds on the same rows, in the same run.

    python benchmarks/likelihoods.py                          # every data set that is on this machine
    python benchmarks/likelihoods.py kin40k usps --data DIR   # some of them, their files in DIR
    python benchmarks/likelihoods.py sonar --splits 10        # the mean over ten cuts of its rows
    python benchmarks/likelihoods.py --quick                  # seconds: does it all work?
    python benchmarks/likelihoods.py --evaluation             # a million labels and a million targets

GPyTorch's SVGP (as many inducing inputs, 40 epochs of batches of 1,024 rows) takes part where it is
installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Table:
    """Rows to learn from and rows to judge by, with labels from 0."""

    X: np.ndarray  # (n, d)
    y: np.ndarray  # (n,)
    Xs: np.ndarray  # (t, d)
    ys: np.ndarray  # (t,)

    def some(self, n: int) -> Table:
        return Table(self.X[:n], self.y[:n], self.Xs[:n], self.ys[:n])

    def splits(self, count: int) -> Iterator[Table]:
        """The table itself, or all its rows cut anew so many times, each class as before."""
        from sklearn.model_selection import train_test_split

        if count == 1:
            yield self
            return
        X, y = np.concatenate([self.X, self.Xs]), np.concatenate([self.y, self.ys])
        for seed in range(count):
            X1, X2, y1, y2 = train_test_split(X, y, test_size=len(self.ys), random_state=seed, stratify=y)
            yield Table(X1, y1, X2, y2)


def _cut(name: str) -> Table:
    """A regression data set whose target is cut at its median."""
    import inducing as ig

    data = ig.datasets.load(name)
    middle = np.median(data.y_train)
    return Table(data.X_train, (data.y_train > middle) * 1, data.X_test, (data.y_test > middle) * 1)


def _labelled(name: str, only: int | None = None) -> Table:
    """A data set of classes, or one of them against the rest."""
    import inducing as ig

    data = ig.datasets.load(name)
    y, ys = (np.asarray(v) if only is None else (v == only) * 1 for v in (data.y_train, data.y_test))
    codes = np.unique(y)
    return Table(
        np.asarray(data.X_train, dtype=float),
        np.searchsorted(codes, y),
        np.asarray(data.X_test, dtype=float),
        np.searchsorted(codes, ys),
    )


def _scikit(name: str) -> Table:
    """A data set that comes with scikit-learn, 30 % of it to judge by."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    X, Xs, y, ys = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    return Table(X, y, Xs, ys)


def late_flights(n: int | None = 20_000) -> Table:
    """Flights more than 15 minutes late, a sample or all of them."""
    import inducing as ig

    data = ig.datasets.load("flights")
    rng = np.random.default_rng(0)
    rows, tests = (rng.permutation(len(y))[:n] for y in (data.y_train, data.y_test))
    late = [(np.asarray(y)[some] > 15.0) * 1 for y, some in ((data.y_train, rows), (data.y_test, tests))]
    return Table(np.asarray(data.X_train)[rows], late[0], np.asarray(data.X_test)[tests], late[1])


TABLES: dict[str, tuple[Callable[[], Table], int]] = {  # and the number of inducing inputs
    "kin40k": (lambda: _cut("kin40k"), 100),
    "pumadyn32nm": (lambda: _cut("pumadyn32nm"), 100),
    "usps4": (lambda: _labelled("usps", 4), 100),
    "usps": (lambda: _labelled("usps"), 200),
    "crabs": (lambda: _labelled("crabs"), 20),
    "sonar": (lambda: _labelled("sonar"), 50),
    "digits": (lambda: _scikit("digits"), 100),
    "wine": (lambda: _scikit("wine"), 30),
    "iris": (lambda: _scikit("iris"), 20),
    "breast cancer": (lambda: _scikit("breast_cancer"), 50),
    "late flights": (late_flights, 100),
    "all late flights": (lambda: late_flights(None), 100),  # an hour; only when asked for
}


@dataclass(frozen=True)
class Score:
    """How one classifier did on a table."""

    error: float
    log_loss: float
    seconds: float
    processor: float  # seconds of all cores, which other programs change little

    def __str__(self) -> str:
        times = f"{self.seconds:8.2f} s {self.processor:8.2f} s of processors"
        return f"{100 * self.error:6.2f} % {self.log_loss:8.4f} {times}"


def average(scores: list[Score]) -> Score:
    """The means over splits."""
    return Score(*(float(np.mean([getattr(s, f.name) for s in scores])) for f in fields(Score)))


def score(table: Table, fit: Callable[[Table], Callable[[np.ndarray], np.ndarray]]) -> Score:
    """Fit and time a classifier; its probabilities are cut to [1e-15, 1]."""
    began, busy = time.perf_counter(), time.process_time()
    probabilities = fit(table)
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    p = probabilities(table.Xs)
    own = np.clip(p[np.arange(len(p)), table.ys], 1e-15, 1.0)
    error = float(np.mean(np.argmax(p, axis=1) != table.ys))
    return Score(error, float(-np.mean(np.log(own))), seconds, busy)


def contenders(m: int, epochs: int, device: str = "cpu") -> Iterator[tuple[str, Callable[[Table], Any]]]:
    """The classifiers by name: ours, scikit-learn's, and GPyTorch's where it is installed."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import inducing as ig

    models = {
        "inducing": lambda: ig.SparseGPClassifier(n_inducing=m, random_state=0),
        "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        "boosting": lambda: HistGradientBoostingClassifier(random_state=0),
    }
    for name, make in models.items():
        yield name, lambda table, make=make: make().fit(table.X, table.y).predict_proba
    if importlib.util.find_spec("gpytorch") is not None:
        yield "SVGP", lambda table: svgp(table, m, epochs, device)


def svgp(table: Table, m: int, epochs: int, device: str) -> Callable[[np.ndarray], np.ndarray]:
    """GPyTorch's tutorial of SVGP: Adam on batches; a softmax of independent processes for many classes."""
    import gpytorch
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    classes = int(table.y.max()) + 1
    middle, scale = table.X.mean(axis=0), table.X.std(axis=0)
    scale[scale == 0] = 1.0

    def tensor(X: np.ndarray) -> Any:
        return torch.tensor((X - middle) / scale, dtype=torch.float32, device=device)

    X, y = tensor(table.X), torch.tensor(table.y, device=device)
    batch = torch.Size([] if classes == 2 else [classes])

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, Z: Any) -> None:
            q = gpytorch.variational.CholeskyVariationalDistribution(len(Z), batch_shape=batch)
            strategy = gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=True)
            if classes > 2:
                strategy = gpytorch.variational.IndependentMultitaskVariationalStrategy(strategy, classes)
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
            inner = gpytorch.kernels.RBFKernel(ard_num_dims=Z.shape[1])
            inner.lengthscale = Z.shape[1] ** 0.5
            self.covar_module = gpytorch.kernels.ScaleKernel(inner)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model(X[torch.randperm(len(X))[:m]].clone())
    if classes == 2:
        likelihood, targets = gpytorch.likelihoods.BernoulliLikelihood(), y.float()
    else:
        likelihood, targets = (
            gpytorch.likelihoods.SoftmaxLikelihood(num_classes=classes, mixing_weights=False),
            y,
        )
    model, likelihood = model.to(device), likelihood.to(device)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    for _ in range(epochs):
        for rows in torch.randperm(len(X)).split(1024):
            optimiser.zero_grad()
            loss = -bound(model(X[rows]), targets[rows])
            loss.backward()
            optimiser.step()
    model.eval()

    def probabilities(Xs: np.ndarray) -> np.ndarray:
        with torch.no_grad(), gpytorch.settings.num_likelihood_samples(64):
            parts = [likelihood(model(part)) for part in tensor(Xs).split(4096)]
            if classes == 2:
                p = torch.cat([part.mean for part in parts]).cpu().numpy().astype(float)
                return np.stack([1.0 - p, p], axis=1)
            return torch.cat([part.probs.mean(dim=0) for part in parts]).cpu().numpy().astype(float)

    return probabilities


def evaluation(n: int, m: int) -> None:
    """One value and gradient under a probit, its sites warm, beside one under Gaussian noise."""
    import inducing as ig
    from inducing.engine.evidence import factorise, gradient_from
    from inducing.engine.sweeps import SiteMemory
    from inducing.inference.regression import approximation_of, as_problem
    from inducing.learning.classes import CLIMB_TOLERANCE
    from inducing.numerics.workers import blas_for

    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 8))
    f = np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2]
    Z = X[:m].copy()
    for row in ("vfe", "fitc"):
        seconds = {}
        for noise, y in ((0.1, f), (ig.likelihoods.Probit(), np.where(f > 0, 1.0, -1.0))):
            memory = SiteMemory()
            for lengthscale in (2.0, 2.02):  # the second evaluation counts: a step of 1 %
                kernel = ig.kernels.RBF(np.full(8, lengthscale), 2.0)
                P = as_problem(kernel, ig.bases.Points(Z), approximation_of(row), noise, X, y)
                with blas_for(m):
                    began = time.perf_counter()
                    F = factorise(P, escalate=False, memory=memory, tolerance=CLIMB_TOLERANCE)
                    gradient_from(P, F)
                    seconds[type(noise).__name__] = time.perf_counter() - began
        ratio = seconds["Probit"] / seconds["float"]
        print(
            f"{row}: {n} rows, m = {m}: Gaussian {seconds['float']:.2f} s, probit {seconds['Probit']:.2f} s,"
            f" {ratio:.1f} times",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"some of {', '.join(TABLES)}")
    parser.add_argument("--quick", action="store_true", help="few rows, inducing inputs and epochs")
    parser.add_argument("--data", help="the folder with the data sets' files")
    parser.add_argument("--splits", type=int, default=1, help="cut each table anew so many times")
    parser.add_argument("--inducing", type=int, help="inducing inputs, for all tables alike")
    parser.add_argument("--who", nargs="*", help="those who take part: inducing, logistic, boosting, SVGP")
    parser.add_argument("--svgp-device", default="cpu", help="where PyTorch computes")
    parser.add_argument("--evaluation", action="store_true", help="time one evaluation of a million rows")
    options = parser.parse_args()
    if unknown := [name for name in options.tables if name not in TABLES]:
        parser.error(f"no table {', '.join(unknown)}; there are {', '.join(TABLES)}")
    if options.data:
        os.environ["INDUCING_DATA"] = options.data
    if options.evaluation or options.quick:
        evaluation(*((2000, 16) if options.quick else (1_000_000, 256)))
    if options.evaluation and not options.tables:
        return
    names = options.tables or (["iris", "breast cancer"] if options.quick else list(TABLES)[:-1])
    for name in names:
        make, m = TABLES[name]
        try:
            table = make()
        except Exception as error:
            print(f"{name}: left out, {error}")
            continue
        m = 8 if options.quick else options.inducing or m
        table = table.some(150) if options.quick else table
        print(f"{name}: {len(table.X)} rows, {table.X.shape[1]} inputs, m = {m}", flush=True)
        for who, fit in contenders(m, 2 if options.quick else 40, options.svgp_device):
            if options.who and who not in options.who:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scores = [score(part, fit) for part in table.splits(options.splits)]
                print(f"  {who:10s} {average(scores)}", flush=True)


if __name__ == "__main__":
    main()
