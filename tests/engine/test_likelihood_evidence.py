"""Evidence, gradient and posterior of every row × basis × likelihood against dense power EP. [DESIGN's third
idea]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
import oracle
import oracle_sites
from inducing.model.likelihoods import Logistic, Poisson, Probit, StudentT

LENGTHSCALE, VARIANCE, JITTER, N = np.array([0.9, 1.3]), 1.7, 1e-8, 14
rng = np.random.default_rng(3)
X = rng.uniform(-2, 2, (N, 2))
XS = rng.uniform(-2.5, 2.5, (6, 2))
F = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
CENTERS = np.array([[-1.6, -1.2], [-1.0, 1.3], [0.1, -0.2], [1.5, 0.4]])
WIDTHS = np.array([[0.9, 1.3], [1.1, 1.0], [0.7, 1.9], [1.4, 1.4]])
LABELS = np.where(F + 0.4 * rng.standard_normal(N) > 0, 1.0, -1.0)
REAL = F + 0.3 * rng.standard_t(3, N)
COUNTS = rng.poisson(np.exp(0.5 * F)).astype(float)

ROWS = {"sor": 1.0, "dtc": 1.0, "vfe": 0.0, "pep": 0.4, "fitc": 1.0, "fic": 1.0}
LIKELIHOODS: dict[str, tuple[Any, np.ndarray, Any]] = {
    "probit": (Probit(0.5), LABELS, oracle_sites.probit(0.5)),
    "logistic": (Logistic(), LABELS, oracle_sites.logistic()),
    "poisson": (Poisson(), COUNTS, oracle_sites.poisson()),
    "student": (StudentT(4.0, 0.4), REAL, oracle_sites.student_t(4.0, 0.4)),
}
K0 = oracle.bind(oracle.rbf, lengthscale=LENGTHSCALE, variance=VARIANCE)
KERNEL = ig.kernels.RBF(LENGTHSCALE, VARIANCE)


def bases(kind: str) -> tuple[Any, oracle.Basis]:
    if kind == "points":
        return ig.bases.Points(CENTERS), oracle.jittered(oracle.points(K0, CENTERS), JITTER)
    dense = oracle.multiscale(CENTERS, WIDTHS, LENGTHSCALE, VARIANCE)
    return ig.bases.Multiscale(CENTERS, WIDTHS), oracle.jittered(dense, JITTER)


def options(name: str) -> dict[str, Any]:
    return {"power": ROWS[name]} if name == "pep" else {}


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("kind", ["points", "multiscale"])
@pytest.mark.parametrize("name", ROWS)
def test_evidence_sites_and_process_are_those_of_dense_power_ep(
    name: str, kind: str, likelihood: str
) -> None:
    model, y, log_p = LIKELIHOODS[likelihood]
    basis, dense = bases(kind)
    Q = oracle.q_matrix(dense, X, X)
    R = np.diag(K0(X, X)) - np.diag(Q) if name not in ("sor", "dtc") else np.zeros(N)
    value, tau, nu = oracle_sites.power_ep(Q, R, y, log_p, ROWS[name])
    post = ig.condition(KERNEL, basis, name, model, X, y, jitter=JITTER, tolerance=1e-9, **options(name))
    assert post.sites.converged
    assert_allclose(post.log_evidence, value, atol=1e-7, rtol=1e-7)
    assert_allclose(post.sites.tau, tau, atol=1e-6 * np.max(np.abs(tau)))
    assert_allclose(post.sites.nu, nu, atol=1e-6 * np.max(np.abs(nu)))
    Qs, Qss = oracle.q_matrix(dense, XS, X), oracle.q_matrix(dense, XS, XS)
    T = np.linalg.solve(np.eye(N) + Q * tau, np.eye(N))
    mean = Qs @ (nu - tau * (T @ Q @ nu))
    cov = Qss - Qs @ (tau[:, None] * T @ Qs.T)
    if name == "fic":
        cov = cov + np.diag(np.diag(K0(XS, XS) - Qss))
    elif name != "sor":
        cov = cov + K0(XS, XS) - Qss
    got_mean, got_variance = post.predict(XS)
    assert_allclose(got_mean, mean, atol=1e-6)
    assert_allclose(got_variance, np.diag(cov), atol=1e-6)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("kind", ["points", "multiscale"])
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_gradient_by_central_differences(name: str, kind: str, likelihood: str, weighted: bool) -> None:
    """The sites converge again at every step, although the gradient holds them."""
    rng = np.random.default_rng(100)
    model, y, _ = LIKELIHOODS[likelihood]
    basis = bases(kind)[0]
    mean = ig.means.Constant(0.2)
    weights = {"weights": rng.choice([0.4, 1.0, 2.0, 3.0], N)} if weighted else {}

    def evaluate(kernel: Any, basis: Any, model: Any, mean: Any) -> float:
        call = dict(mean=mean, jitter=1e-6, tolerance=1e-11, **weights, **options(name))
        return ig.log_evidence(kernel, basis, name, model, X, y, **call)

    call = dict(mean=mean, jitter=1e-6, tolerance=1e-11, **weights, **options(name))
    value, gradient = ig.log_evidence_and_gradient(KERNEL, basis, name, model, X, y, **call)
    assert value == pytest.approx(evaluate(KERNEL, basis, model, mean), rel=1e-10)
    things = {"kernel": KERNEL, "basis": basis, "likelihood": model, "mean": mean}
    names = {key: list(thing.parameters) for key, thing in things.items()}
    assert set(gradient) == {f"{key}.{name}" for key in things for name in names[key]}
    for full, slope in gradient.items():
        key, _, leaf = full.partition(".")
        thing = things[key]
        at = np.asarray(thing.parameters[leaf], dtype=float)
        direction = np.ones_like(at) if at.ndim == 0 else np.random.default_rng(1).standard_normal(at.shape)
        h = 1e-5
        ends = []
        for sign in (1.0, -1.0):
            moved = thing.with_parameters({leaf: at + sign * h * direction})
            ends.append(
                evaluate(**{{"likelihood": "model"}.get(k, k): v for k, v in (things | {key: moved}).items()})
            )
        expected = (ends[0] - ends[1]) / (2 * h)
        tolerance = 3e-5 if likelihood == "student" else 1e-5
        assert_allclose(np.sum(slope * direction), expected, rtol=tolerance, atol=tolerance, err_msg=full)


@pytest.mark.parametrize("likelihood", ["probit", "logistic", "poisson", "student"])
def test_power_zero_is_the_best_bound_of_all(likelihood: str) -> None:
    model, y, log_p = LIKELIHOODS[likelihood]
    Z = CENTERS[:3]
    dense = oracle.jittered(oracle.points(K0, Z), JITTER)
    Q = oracle.q_matrix(dense, X, X)
    values, vectors = np.linalg.eigh(Q)
    Phi = vectors[:, -3:] * np.sqrt(values[-3:])  # Q = ΦΦᵀ
    R = np.diag(K0(X, X) - Q)
    bound = oracle_sites.best_bound(Phi, R, y, log_p)
    value = ig.log_evidence(KERNEL, ig.bases.Points(Z), "vfe", model, X, y, jitter=JITTER, tolerance=1e-9)
    assert value == pytest.approx(bound, abs=2e-6)


def test_gaussian_likelihood_is_gaussian_noise() -> None:
    for name in ROWS:
        call = options(name)
        expected = ig.condition(KERNEL, ig.bases.Points(CENTERS), name, 0.09, X, REAL, **call)
        got = ig.condition(
            KERNEL, ig.bases.Points(CENTERS), name, ig.likelihoods.Gaussian(0.09), X, REAL, **call
        )
        assert got.log_evidence == pytest.approx(expected.log_evidence, rel=1e-12)
        assert_allclose(got.predict(XS)[0], expected.predict(XS)[0], rtol=1e-12)


@pytest.mark.parametrize("likelihood", ["probit", "logistic", "poisson"])
def test_powers_meet_the_ends_of_the_table(likelihood: str) -> None:
    model, y, _ = LIKELIHOODS[likelihood]
    basis = ig.bases.Points(CENTERS)
    for end, power in (("vfe", 1e-6), ("fitc", 1.0)):
        a, b = (
            ig.log_evidence(KERNEL, basis, row, model, X, y, **o)
            for row, o in ((end, {}), ("pep", {"power": power}))
        )
        assert a == pytest.approx(b, abs=1e-4)


def test_a_basis_at_the_rows_is_textbook_ep() -> None:
    import oracle_propagation

    _, _, log_Z = oracle_propagation.dense_ep(K0(X, X), LABELS, 0.5)
    value = ig.log_evidence(
        KERNEL, ig.bases.Points(X), "fitc", Probit(0.5), X, LABELS, jitter=1e-12, tolerance=1e-9
    )
    assert value == pytest.approx(log_Z, abs=1e-6)


@pytest.mark.parametrize("name", ["vfe", "fitc"])
def test_whole_weights_repeat_rows(name: str) -> None:
    rng = np.random.default_rng(101)
    times = rng.integers(1, 4, N)
    basis = ig.bases.Points(CENTERS)
    weighted = ig.condition(
        KERNEL, basis, name, Probit(0.5), X, LABELS, weights=times.astype(float), tolerance=1e-9
    )
    literal = ig.condition(
        KERNEL,
        basis,
        name,
        Probit(0.5),
        np.repeat(X, times, axis=0),
        np.repeat(LABELS, times),
        tolerance=1e-9,
    )
    assert weighted.log_evidence == pytest.approx(literal.log_evidence, rel=1e-8)
    assert_allclose(weighted.predict(XS)[1], literal.predict(XS)[1], rtol=1e-7)


@pytest.mark.parametrize("name", ["vfe", "fitc", "pep"])
def test_heavy_weights_settle(name: str) -> None:
    """A thousand sites of one row move at once; where they have settled the gradient is a derivative."""
    weights = np.where(LABELS > 0, 1000.0, 1e-3)
    basis, call = ig.bases.Points(CENTERS), dict(weights=weights, tolerance=1e-9, sweeps=400)

    def at(variance: float) -> tuple[float, dict[str, Any]]:
        kernel = ig.kernels.RBF(LENGTHSCALE, variance)
        return ig.log_evidence_and_gradient(kernel, basis, name, Probit(), X, LABELS, **call, **options(name))

    slope = at(50.0)[1]["kernel.variance"]
    assert slope == pytest.approx((at(50.01)[0] - at(49.99)[0]) / 0.02, rel=1e-5)


@pytest.mark.parametrize("likelihood, weight", [(Probit(), 1e3), (Logistic(), 1e4)], ids=str)
def test_heavy_weights_settle_soon(likelihood: Any, weight: float) -> None:
    """In steps that are too long they go to and fro for a hundred sweeps."""
    kernel, weights = ig.kernels.RBF(LENGTHSCALE, 50.0), np.where(LABELS > 0, weight, 1e-3)
    post = ig.condition(kernel, ig.bases.Points(CENTERS), "vfe", likelihood, X, LABELS, weights=weights)
    assert post.sites.converged and post.sites.n_sweeps < 65


@pytest.mark.parametrize("name", ["vfe", "fitc", "pep", "dtc"])
@pytest.mark.parametrize("likelihood", ["probit", "student"])
def test_sources_give_the_same_numbers(name: str, likelihood: str) -> None:
    model, y, _ = LIKELIHOODS[likelihood]
    basis, call = ig.bases.Points(CENTERS), options(name) | {"tolerance": 1e-10}
    value, gradient = ig.log_evidence_and_gradient(KERNEL, basis, name, model, X, y, **call)
    source = ig.as_source(X, y, chunk_rows=5)
    got, slopes = ig.log_evidence_and_gradient(KERNEL, basis, name, model, source, **call)
    assert got == pytest.approx(value, rel=1e-9)
    for key, slope in gradient.items():
        assert_allclose(slopes[key], slope, rtol=1e-6, atol=1e-7 * np.max(np.abs(slope)), err_msg=key)
    post = ig.condition(KERNEL, basis, name, model, source, **call)
    here = ig.condition(KERNEL, basis, name, model, X, y, **call)
    assert_allclose(post.sites.tau, here.sites.tau, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["vfe", "fitc"])
@pytest.mark.parametrize("likelihood", ["probit", "student"])  # with sites of either sign
def test_compiled_passes_give_the_same_gradient(
    name: str, likelihood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inducing.engine import compiled_passes

    model, y, _ = LIKELIHOODS[likelihood]
    answers = []
    for least in (0, 1 << 60):
        monkeypatch.setattr(compiled_passes, "LEAST", least)
        answers.append(ig.log_evidence_and_gradient(KERNEL, ig.bases.Points(CENTERS), name, model, X, y))
    (value, gradient), (other, slopes) = answers
    assert value == pytest.approx(other, rel=1e-12)
    for key, slope in slopes.items():
        assert_allclose(gradient[key], slope, rtol=1e-9, atol=1e-11 * np.max(np.abs(slope)), err_msg=key)


def test_blocks_take_gaussian_noise_alone() -> None:
    with pytest.raises(ig.errors.ParameterError, match="needs Gaussian noise"):
        ig.condition(KERNEL, ig.bases.Points(CENTERS), "pitc", Probit(), X, LABELS, blocks=np.zeros(N))


@pytest.mark.parametrize("variance", [120.0, 1000.0])
def test_rare_labels_that_one_input_nearly_tells_settle(variance: float) -> None:
    """The sites of a wide prior leap out of a good region once; sweeps go back there, on in shorter steps."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 5, 3000)
    X = np.column_stack([level, rng.standard_normal((3000, 2))])
    labels = np.where(rng.uniform(size=3000) < np.where(level == 4, 0.98, 0.004), 1.0, -1.0)
    kept = (level != 4) | (rng.uniform(size=3000) < 0.2)
    kernel, basis = ig.kernels.RBF([0.5, 6.0, 6.0], variance), ig.bases.Points(X[kept][:30])
    post = ig.condition(kernel, basis, "fitc", Logistic(), X[kept], labels[kept], tolerance=1e-4)
    assert post.sites.converged and post.log_evidence > -0.04 * kept.sum()
