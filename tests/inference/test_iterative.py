"""The exact GP by conjugate gradients against Cholesky: solves, error bounds, log determinant, gradient,
memory.
"""

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from experiments import reproduce
from experiments.dual_tree import Tree
from experiments.gauss_transform import Gauss
from inducing import errors
from inducing.inference.conjugate_gradients import krylov
from inducing.inference.conjugate_gradients import predictor as iterative
from inducing.inference.conjugate_gradients.predictor import Solver
from inducing.inference.regression import problem_of
from inducing.numerics import workers

N, T, NOISE = 360, 30, 0.02
rng = np.random.default_rng(1)
X = rng.uniform(-2.0, 2.0, size=(N, 2))
XS = rng.uniform(-2.5, 2.5, size=(T, 2))
Y = np.stack([np.sin(2.0 * X[:, 0]) + X[:, 1], np.cos(X[:, 1])], axis=1) + np.sqrt(
    NOISE
) * rng.standard_normal((N, 2))
KERNELS = {
    "RBF": ig.kernels.RBF([0.6, 0.9], 1.3),
    "Matern12": ig.kernels.Matern12(0.8, 1.3),
    "sum": ig.kernels.RBF(0.9, 0.9) + ig.kernels.Matern52(1.4, 0.4, columns=(0,)),
}


def covariance(kernel: Any, noise: Any = NOISE) -> np.ndarray:
    return kernel(X, X) + np.diag(np.broadcast_to(noise, N))


def posterior(kernel: Any, Xs: np.ndarray = XS, noise: Any = NOISE) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the exact GP, from the formulas. [002, Gaussian Process Regression]"""
    A, Ks = covariance(kernel, noise), kernel(Xs, X)
    return Ks @ np.linalg.solve(A, Y), kernel(Xs, Xs) - Ks @ np.linalg.solve(A, Ks.T)


def log_density(kernel: Any) -> float:
    A = covariance(kernel)
    return float(
        -0.5 * (np.sum(Y * np.linalg.solve(A, Y)) + 2 * (N * np.log(2 * np.pi) + np.linalg.slogdet(A)[1]))
    )


def problem(kernel: Any, y: np.ndarray = Y, noise: Any = NOISE, **options: Any) -> Any:
    return problem_of(kernel, None, "cg", noise, X, y, **options)


@pytest.mark.parametrize("name", KERNELS)
def test_predictions_are_within_their_bounds(name: str) -> None:
    kernel = KERNELS[name]
    mean, cov = posterior(kernel)
    for tolerance in (1e-2, 1e-6):
        found = iterative.predictor_of(problem(kernel), Solver(tolerance=tolerance, rank=30))
        got = found.predict(XS)
        scale = np.sqrt(np.mean(Y**2, axis=0))
        assert np.all(np.abs(got.mean - mean) <= tolerance * scale)
        assert np.all(np.abs(got.mean - mean) <= found.mean_error(XS)[:, None] + 1e-12)
        excess = (got.variance - np.diag(cov)) / kernel.diag(XS)
        assert np.all((excess > -1e-11) & (excess <= tolerance))  # never below the exact one
        assert np.max(np.abs(found.covariance(XS) - cov)) <= tolerance * np.max(kernel.diag(XS))
        assert_allclose(found.mean(XS), got.mean, rtol=0, atol=0)


def test_the_public_name_and_shapes() -> None:
    kernel, mean = KERNELS["RBF"], ig.means.Constant(0.7)
    exact = ig.condition(kernel, None, "exact", NOISE, X, Y[:, 0], mean=mean)
    found = ig.condition(kernel, None, "cg", NOISE, X, Y[:, 0], mean=mean)
    assert isinstance(found, iterative.Iterative)
    for got, want in zip(found.predict(XS), exact.predict(XS), strict=True):
        assert got.shape == want.shape == (T,)
        assert_allclose(got, want, rtol=0, atol=1e-5)
    assert found.alpha.shape == (N,)
    assert_allclose(found.alpha, exact.alpha, rtol=0, atol=1e-4 * np.max(np.abs(exact.alpha)))
    assert len(found.basis) == N and found.kernel is kernel


def test_noise_of_each_row_and_weights() -> None:
    """Two rows instead of one of weight 2; a noise for every row."""
    rng = np.random.default_rng(100)
    noise, kernel = rng.uniform(0.01, 0.2, N), KERNELS["RBF"]
    mean, _ = posterior(kernel, noise=noise)
    found = ig.condition(kernel, None, "cg", noise, X, Y)
    assert_allclose(found.predict(XS).mean, mean, rtol=0, atol=1e-5)
    weights = rng.choice([1.0, 2.0], N)
    double = np.concatenate([np.arange(N), np.flatnonzero(weights == 2)])
    twice = ig.condition(kernel, None, "exact", NOISE, X[double], Y[double])
    once = iterative.condition(kernel, None, "cg", NOISE, X, Y, weights=weights, solver=Solver(probes=200))
    assert_allclose(once.predict(XS).mean, twice.predict(XS).mean, rtol=0, atol=1e-5)
    assert abs(once.log_evidence - twice.log_evidence) < 4.0 * once.evidence.error


@pytest.mark.parametrize("rank", [0, 10, 80])
def test_preconditioner_against_dense(rank: int) -> None:
    """Cholesky with pivots written out: each time the largest diagonal of what is left of K."""
    rng = np.random.default_rng(101)
    kernel, noise = KERNELS["RBF"], rng.uniform(0.01, 0.1, N)
    A = X[np.lexsort(X.T[::-1])]  # the first pivot is the first of equals
    P = krylov.precondition(kernel, A, noise, rank, 1e-12)
    rest = kernel(A, A)
    for _ in range(rank):
        i = np.argmax(np.diag(rest))
        rest = rest - np.outer(rest[i], rest[i]) / rest[i, i]
    dense = kernel(A, A) - rest + np.diag(noise)
    assert P.rank == rank
    B = rng.standard_normal((N, 3))
    assert_allclose(
        P.solve(B), np.linalg.solve(dense, B), rtol=0, atol=1e-7 * np.max(np.abs(B / noise[:, None]))
    )
    assert_allclose(P.inverse_diagonal(), np.diag(np.linalg.inv(dense)), rtol=1e-6)
    assert_allclose(P.log_det, np.linalg.slogdet(dense)[1], rtol=1e-9)
    Z = P.sample(4000, np.random.default_rng(0))
    assert_allclose(np.sum(Z * np.linalg.solve(dense, Z), axis=0), N, rtol=1e-6)
    error = (Z @ Z.T / 4000 - dense) / np.sqrt(np.outer(np.diag(dense), np.diag(dense)))
    assert np.sqrt(np.mean(error**2)) < 1.2 * np.sqrt(2.0 / 4000)


def test_the_pivots_end_where_nothing_is_left() -> None:
    long = krylov.precondition(ig.kernels.RBF(50.0), X, np.full(N, 0.1), 100, 1e-8)
    assert 2 <= long.rank <= 20
    assert np.max(np.abs(ig.kernels.RBF(50.0)(X, X) - long.Phi @ long.Phi.T)) < 1e-3


def test_preconditioning_saves_iterations() -> None:
    counts = [
        iterative.predictor_of(problem(KERNELS["RBF"]), Solver(rank=rank)).solution.products
        for rank in (0, 20, 100)
    ]
    assert counts[0] > 2 * counts[1] > 2 * counts[2]


def test_columns_leave_when_they_have_arrived() -> None:
    A = np.diag(np.linspace(1.0, 50.0, N))
    asked: list[int] = []

    def multiply(V: np.ndarray) -> np.ndarray:
        asked.append(V.shape[1])
        return A @ V

    B = np.stack([np.eye(N)[:, 3], np.ones(N), np.zeros(N)], axis=1)  # one step, many, none
    P = krylov.precondition(ig.kernels.RBF(1.0), X, np.ones(N), 0, 1e-8)
    found = krylov.conjugate_gradients(multiply, B, P, np.full(3, 1e-9), max_iterations=500, what="a test")
    assert_allclose(found.X, np.linalg.solve(A, B), rtol=0, atol=1e-9)
    assert (
        found.iterations[0] == 1
        and found.iterations[2] == 0
        and found.iterations[1] == found.products == len(asked)
    )
    assert asked[0] == 2 and set(asked[1:]) == {1}
    assert np.all(found.residuals <= 1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_log_evidence_within_its_standard_error(name: str) -> None:
    kernel = KERNELS[name]
    expected = log_density(kernel)
    rough, fine = (
        iterative.predictor_of(problem(kernel), Solver(rank=40, probes=probes)).evidence
        for probes in (16, 400)
    )
    assert abs(rough.value - expected) < 4.0 * rough.error
    assert abs(fine.value - expected) < 4.0 * fine.error
    assert fine.error < 0.5 * rough.error


def test_the_standard_error_is_one() -> None:
    """Over seeds, deviations have the spread that is stated."""
    kernel = KERNELS["Matern12"]
    expected, P = log_density(kernel), problem(kernel)
    runs = [
        iterative.predictor_of(P, Solver(rank=60, tolerance=1e-2, rng=seed)).evidence for seed in range(20)
    ]
    scores = np.array([(run.value - expected) / run.error for run in runs])
    assert 0.6 < np.std(scores) < 1.7
    assert abs(np.mean(scores)) < 4.0 / np.sqrt(20)


def test_lanczos_quadrature_is_exact_for_few_eigenvalues() -> None:
    """With k different eigenvalues k steps give bᵀ log(A) b itself."""
    rng = np.random.default_rng(102)
    values = np.repeat([0.5, 2.0, 7.0, 30.0], N // 4)
    P = krylov.precondition(ig.kernels.RBF(1.0), X, np.ones(N), 0, 1e-8)
    B = rng.standard_normal((N, 2))
    found = krylov.conjugate_gradients(
        lambda V: values[:, None] * V, B, P, np.full(2, 1e-9), max_iterations=50, what="a test"
    )
    assert_allclose(found.log_quadratics(), np.sum(B * np.log(values)[:, None] * B, axis=0), rtol=1e-9)


@pytest.mark.parametrize("name, rank", [("RBF", 100), ("RBF", 5), ("Matern12", 40), ("sum", 60)])
def test_gradient_against_the_dense_one(name: str, rank: int) -> None:
    """½ tr[(ααᵀ - p A⁻¹) dA], with and without the preconditioner taking the lead; many probes, so that 3 %
    is many errors.
    """
    kernel, mean = KERNELS[name], ig.means.Constant(0.2)
    expected, slopes = ig.log_evidence_and_gradient(kernel, None, "exact", NOISE, X, Y, mean=mean)
    evidence, gradient = iterative.log_evidence_and_gradient(
        problem(kernel, mean=mean), Solver(rank=rank, probes=400)
    )
    assert abs(evidence.value - expected) < 4.0 * evidence.error
    assert set(gradient) == {key for key in slopes if not key.startswith("basis")}
    A = covariance(kernel)
    scale = {"noise": np.trace(np.linalg.inv(A))}  # the size of the trace term, which is what is estimated
    for key, slope in gradient.items():
        size = scale.get(key, np.sum(np.abs(slopes[key])))
        assert_allclose(slope, slopes[key], rtol=0, atol=0.03 * size, err_msg=key)
    assert_allclose(gradient["mean.value"], slopes["mean.value"], rtol=1e-4)


def test_the_preconditioner_lowers_the_gradients_variance() -> None:
    kernel, P = KERNELS["RBF"], problem(KERNELS["RBF"])
    _, slopes = ig.log_evidence_and_gradient(kernel, None, "exact", NOISE, X, Y)
    errors_ = []
    for rank in (20, 120):
        solvers = [Solver(rank=rank, probes=8, rng=seed, tolerance=1e-2) for seed in range(6)]
        found = [iterative.log_evidence_and_gradient(P, solver)[1]["kernel.variance"] for solver in solvers]
        errors_.append(np.std(np.array(found) - slopes["kernel.variance"]))
    assert errors_[1] < 0.3 * errors_[0]


def test_noise_gradient_of_each_row() -> None:
    rng = np.random.default_rng(103)
    noise, kernel = rng.uniform(0.02, 0.2, N), KERNELS["RBF"]
    weights = rng.uniform(0.5, 2.0, N)
    _, slopes = ig.log_evidence_and_gradient(kernel, None, "exact", noise, X, Y, weights=weights)
    P = problem(kernel, noise=noise, weights=weights)
    _, gradient = iterative.log_evidence_and_gradient(P, Solver(rank=150, probes=200))
    scale = np.abs(slopes["noise"]) + 1.0 / noise
    assert np.max(np.abs(gradient["noise"] - slopes["noise"]) / scale) < 0.05


def test_fit_by_conjugate_gradients() -> None:
    """The same hyperparameters as Cholesky's, to what the probes leave."""
    start = ig.kernels.RBF(1.5, 1.0)
    exact = ig.fit(start, None, "exact", 0.1, X, Y[:, 0], progress=False)
    found = ig.fit(start, None, "cg", 0.1, X, Y[:, 0], progress=False)
    assert isinstance(found.posterior, iterative.Iterative)
    assert_allclose(found.kernel.lengthscale, exact.kernel.lengthscale, rtol=0.05)
    assert_allclose(found.noise, exact.noise, rtol=0.05)
    value = ig.log_evidence(found.kernel, None, "exact", found.noise, X, Y[:, 0])
    assert exact.value - value < 0.5


@pytest.mark.parametrize("lengthscale, kind", [(0.04, Tree), (3.0, Gauss)])
def test_with_approximate_products(lengthscale: float, kind: Any) -> None:
    kernel = ig.kernels.RBF(lengthscale, 1.3)
    solver = Solver(tolerance=1e-4, product=lambda k, X: kind(k, X, 1e-12))
    found = iterative.predictor_of(problem(kernel), solver)
    mean, cov = posterior(kernel)
    assert_allclose(found.mean(XS), mean, rtol=0, atol=1e-4)
    assert_allclose(found.predict(XS).variance, np.diag(cov), rtol=0, atol=1.3e-4)


def test_it_says_when_it_did_not_arrive() -> None:
    with pytest.warns(
        errors.IterationWarning, match="for the mean ended after 3 iterations with a residual .* its target"
    ):
        iterative.predictor_of(problem(KERNELS["Matern12"]), Solver(rank=0, max_iterations=3))


def test_refusals() -> None:
    with pytest.raises(errors.ParameterError, match="tolerance must lie in \\(0, 1\\), but is 0"):
        Solver(tolerance=0.0)
    with pytest.raises(errors.ParameterError, match="probes must be a whole number of at least 2"):
        Solver(probes=1)
    with pytest.raises(errors.ParameterError, match="solve for 'cg', not for 'vfe'"):
        iterative.condition(KERNELS["RBF"], None, "vfe", NOISE, X, Y)
    with pytest.raises(errors.ParameterError, match="power is only for 'pep', not for 'cg'"):
        ig.condition(KERNELS["RBF"], None, "cg", NOISE, X, Y, power=0.5)
    with pytest.raises(errors.ShapeError, match="X has 1 columns"):
        ig.condition(KERNELS["RBF"], None, "cg", NOISE, X, Y).predict(np.zeros((2, 1)))


def test_memory() -> None:
    """Nothing n x n: 6,000 rows, whose K alone would be 288 MB, in less than a third of that."""
    rng = np.random.default_rng(104)
    import tracemalloc

    A = rng.uniform(size=(6000, 2))
    y = np.sin(5.0 * A[:, 0])
    kernel = ig.kernels.RBF(0.5)
    ig.condition(kernel, None, "cg", 0.1, A[:600], y[:600]).predict(XS[:2])  # what loads once
    tracemalloc.start()
    with workers.using(threads=2):  # every thread has buffers of its own
        found = iterative.condition(kernel, None, "cg", 0.1, A, y, solver=Solver(tolerance=1e-2, rank=30))
        found.predict(XS[:3])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 90e6


def test_on_torch_tensors() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    kernel = KERNELS["sum"]
    place = torch.from_numpy
    P = problem_of(kernel, None, "cg", NOISE, place(X), place(Y))
    found, want = iterative.predictor_of(P), iterative.predictor_of(problem(kernel))
    for got, expected in zip(found.predict(place(XS)), want.predict(XS), strict=True):
        assert isinstance(got, torch.Tensor)
        assert_allclose(got.numpy(), expected, rtol=0, atol=1e-8)
    assert_allclose(found.covariance(place(XS)).numpy(), want.covariance(XS), rtol=0, atol=1e-8)
    assert_allclose(found.log_evidence, want.log_evidence, rtol=1e-9)
    _, gradient = iterative.log_evidence_and_gradient(P)
    _, expected = iterative.log_evidence_and_gradient(problem(kernel))
    for key, slope in expected.items():
        assert_allclose(gradient[key].numpy(), slope, rtol=1e-6, err_msg=key)


@pytest.mark.skipif("INDUCING_DATA" not in os.environ, reason="real data: INDUCING_DATA is not set")
def test_kin40k() -> None:
    data = ig.datasets.load("kin40k")
    A, y = data.X_train[:1100], data.y_train[:1100]
    kernel = ig.kernels.RBF(2.0, float(np.var(y)))
    exact, found = (
        ig.condition(kernel, None, name, 0.01, A, y).mean(data.X_test[:200]) for name in ("exact", "cg")
    )
    assert np.max(np.abs(found - exact)) < 1e-6 * np.std(y)


@pytest.mark.parametrize("cores", [1, 3])
def test_gradients_of_blocks_are_those_of_the_matrix(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six blocks on and below the diagonal, each thread with a sum of its own."""
    monkeypatch.setattr(workers, "_process_cores", lambda: cores)
    draw = np.random.default_rng(7)
    rows, kernel = draw.uniform(-2.0, 2.0, (1100, 2)), ig.kernels.Matern32([0.7, 1.1], 1.3)
    P = problem_of(kernel, None, "cg", NOISE, rows, rows[:, 0])
    V = draw.standard_normal((1100, 2))
    found, expected = iterative._over_pairs(P, V, V), kernel.pullback(rows, rows, V @ V.T)[0]
    assert set(found) == set(expected)
    for name, slope in expected.items():
        assert_allclose(found[name], slope, rtol=1e-9)


def test_quick_page(tmp_path: Any) -> None:
    """The claims that are not about time hold; the pictures are there."""
    report = reproduce("E3", quick=True, folder=tmp_path)
    held = {claim.text: claim.holds for claim in report.claims}
    assert held["errors stay below the bound"]
    assert held["conjugate gradients solve (K + σ²I)v = y"]
    assert all((tmp_path / "E3" / f"{stem}.png").stat().st_size > 10_000 for stem in report.pictures)


def test_solver_is_a_value() -> None:
    assert replace(Solver(), rank=7) == Solver(rank=7)


def test_an_estimators_means_need_no_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ig.SparseGPRegressor(approximation="cg", max_iter=3).fit(X, Y)
    expected = model.predict(XS, return_std=True)[0]
    monkeypatch.setattr(iterative.System, "solve", None)
    assert_allclose(model.predict(XS), expected, rtol=1e-12)


def test_queries_of_another_kind_are_refused() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    gp = ig.condition(KERNELS["RBF"], None, "cg", NOISE, X, Y)
    with pytest.raises(errors.ParameterError, match="convert one"):
        gp.predict(torch.from_numpy(XS))


def test_the_residual_corrects_the_quadratic_form():
    """yᵀα + αᵀr is off by |r|²/σ² at most, of second order; without αᵀr the error is of first order."""
    rng = np.random.default_rng(6)
    X, kernel, noise = rng.normal(size=(60, 2)), ig.kernels.RBF(0.8, 1.0), 0.05
    y = rng.normal(size=60)
    system = iterative.System.of(problem_of(kernel, None, "exact", noise, X, y), Solver(rank=5))
    K = kernel(X, X) + noise * np.eye(60)
    exact = y @ np.linalg.solve(K, y)
    alpha = np.linalg.solve(K, y) * (1.0 + 1e-5 * rng.normal(size=60))
    residual = y - K @ alpha
    first = system.evidence(alpha[:, None], residual[:, None], np.zeros(4)).value
    right = system.evidence(np.linalg.solve(K, y)[:, None], np.zeros((60, 1)), np.zeros(4)).value
    error = abs(2.0 * (first - right))
    assert error <= residual @ residual / noise
    assert error < 0.05 * abs(y @ alpha - exact)
