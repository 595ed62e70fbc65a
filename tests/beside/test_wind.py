"""Winds from a scatterometer: CMOD5.N and appendix F of 004 against independent formulas, retrieval on known
winds.
"""

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing.beside import wind
from inducing.beside.wind_model import Beams, cmod5n, log_backscatter, measure, retrieve_locally
from inducing.errors import DataNotFoundError, IterationWarning, NoiseError, ParameterError, ShapeError
from inducing.inference import fields
from inducing.inference.mixtures import Mixtures
from inducing.model import means
from inducing.model.kernels import CurlFree, DivergenceFree, Independent

KERNEL = DivergenceFree(3.0, 5.0) + CurlFree(2.0, 1.0) + Independent([40.0, 40.0])
W0 = 46.0 * np.eye(2)
NOISE = 0.06**2
SIDE = 5
X = np.array([(0.25 * x, 0.25 * y) for y in range(SIDE) for x in range(SIDE)])
BEAMS = Beams.ers(0.25 + 0.5 * X[:, 0])
WINDS = np.column_stack([8.0 + 2.0 * X[:, 1], -3.0 + 3.0 * X[:, 0]])  # a wind that turns

PRINTED = """-0.6878 -0.7957 0.3380 -0.1728 0.0000 0.0040 0.1103 0.0159 6.7329 2.7713 -2.2885 0.4971 -0.7250
0.0450 0.0066 0.3222 0.0120 22.7000 2.0813 3.0000 8.3659 -3.3428 1.3236 6.2437 2.3893 0.3249 4.1590 1.6930"""


def scalar_cmod5n(v: float, phi: float, theta: float) -> float:
    """One number at a time, as published."""
    c = [math.nan, *map(float, PRINTED.split())]
    x = (theta - 40.0) / 25.0

    def logistic(s: float) -> float:
        return 1.0 / (1.0 + math.exp(-s))

    a0 = c[1] + c[2] * x + c[3] * x**2 + c[4] * x**3
    gamma, s0, s = c[9] + c[10] * x + c[11] * x**2, c[12] + c[13] * x, (c[7] + c[8] * x) * v
    f = logistic(s) if s >= s0 else (s / s0) ** (s0 * (1.0 - logistic(s0))) * logistic(s0)
    B0 = f**gamma * 10.0 ** (a0 + (c[5] + c[6] * x) * v)
    B1 = c[14] * (1.0 + x) - c[15] * v * (0.5 + x - math.tanh(4.0 * (x + c[16] + c[17] * v)))
    B1 /= 1.0 + math.exp(0.34 * (v - c[18]))
    v0, d1, d2 = c[21] + c[22] * x + c[23] * x**2, c[24] + c[25] * x + c[26] * x**2, c[27] + c[28] * x
    y = v / v0 + 1.0
    if y < c[19]:
        y = c[19] - (c[19] - 1.0) / c[20] + (y - 1.0) ** c[20] / (c[20] * (c[19] - 1.0) ** (c[20] - 1.0))
    B2 = (-d1 + d2 * y) * math.exp(-y)
    return B0 * (1.0 + B1 * math.cos(math.radians(phi)) + B2 * math.cos(math.radians(2.0 * phi))) ** 1.6


@pytest.mark.parametrize("theta", [25.0, 40.0, 64.0])
@pytest.mark.parametrize("v", [0.5, 2.0, 4.5, 9.0, 15.0, 27.0])
def test_cmod5n_is_the_published_formula(v: float, theta: float) -> None:
    angles = np.array([0.0, 30.0, 90.0, 135.0, 180.0, 270.0])
    expected = [scalar_cmod5n(v, phi, theta) for phi in angles]
    assert_allclose(cmod5n(v, angles, theta), expected, rtol=1e-12)


def test_backscatter_behaves_as_the_sea_does() -> None:
    upwind, crosswind, downwind = (10 * np.log10(cmod5n(10.0, phi, 40.0)) for phi in (0.0, 90.0, 180.0))
    assert upwind > downwind > crosswind + 3.0  # dB
    assert np.all(np.diff(cmod5n(np.arange(2.0, 20.0), 45.0, 40.0)) > 0.0)
    beams = Beams(np.array([[90.0]]), np.array([[40.0]]))
    toward = log_backscatter(np.array([[-10.0, 0.0]]), beams)[0]  # blows from the east, the beam looks east
    assert_allclose(np.exp(toward), cmod5n(10.0, 0.0, 40.0), rtol=1e-12)


def test_slopes_of_the_model() -> None:
    winds, h = np.random.default_rng(0).normal(size=(25, 3, 2)) * 8.0, 1e-6
    _, slopes = log_backscatter(winds, BEAMS)
    for k in range(2):
        step = h * np.eye(2)[k]
        difference = (log_backscatter(winds + step, BEAMS)[0] - log_backscatter(winds - step, BEAMS)[0]) / (
            2 * h
        )
        assert_allclose(slopes[..., k], difference, rtol=1e-6, atol=1e-8)


# Appendix F: a mixture with a prior divided out.


def a_mixture(mean0: Any, seed: int = 0) -> tuple[Mixtures, Any]:
    """Four Gaussians narrower than the prior N(mean0, W₀); and their density over the prior's, as a function
    of z.
    """
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(4, 2, 2))
    A = 0.4 * np.eye(2) + 0.15 * A @ np.swapaxes(A, 1, 2)
    weights, centres, W = (
        rng.dirichlet(np.ones(4)),
        3.0 * rng.normal(size=(4, 2)),
        np.array([[7.0, 1.0], [1.0, 5.0]]),
    )

    def log_gaussian(z: np.ndarray, mean: Any, S: np.ndarray) -> np.ndarray:
        e = z - mean
        return -0.5 * (np.sum(e @ np.linalg.inv(S) * e, axis=-1) + np.log(np.linalg.det(2 * np.pi * S)))

    def density(z: np.ndarray) -> np.ndarray:
        top = sum(w * np.exp(log_gaussian(z, c, S)) for w, c, S in zip(weights, centres, A))
        return top / np.exp(log_gaussian(z, mean0, W))

    return Mixtures.of(weights[None], centres[None], A[None], mean0, W), density


@pytest.mark.parametrize("mean0", [[0.0, 0.0], [4.0, -2.5]], ids=["zero prior mean", "background mean"])
def test_the_average_and_its_derivatives(mean0: list[float]) -> None:
    """g(μ) of eq. F.2 by quadrature, and q and r of eq. F.9 by differences of log g."""
    t, density = a_mixture(mean0)
    mu, W = np.array([0.7, -0.4]), np.array([[2.0, 0.5], [0.5, 1.2]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    z = mu + np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2) @ np.linalg.cholesky(W).T
    average = np.sum(np.outer(weights, weights).ravel() * density(z)) / (2 * np.pi)

    def log_g(at: np.ndarray) -> float:
        return float(t.tilted(at[None], W[None])[0][0])

    assert log_g(mu) == pytest.approx(math.log(average), abs=1e-6)
    assert_allclose(np.exp(t.log_density(z[:1])), density(z[:1]), rtol=1e-10)
    _, q, r = t.tilted(mu[None], W[None])
    h = 1e-4
    steps = h * np.eye(2)
    slope = np.array([(log_g(mu + e) - log_g(mu - e)) / (2 * h) for e in steps])
    assert_allclose(q[0], slope, rtol=1e-6, atol=1e-7)

    def q_at(at: np.ndarray) -> np.ndarray:
        return t.tilted(at[None], W[None])[1][0]

    assert_allclose(
        r[0], np.array([(q_at(mu + e) - q_at(mu - e)) / (2 * h) for e in steps]), rtol=1e-6, atol=1e-7
    )


def test_eq_f_5_and_f_7_for_one_component() -> None:
    """s = K exp(-F/2) with zero prior mean, F from eq. F.5 and from F.6 with A in place of I₂."""
    c, A, W = np.array([1.5, -0.5]), np.array([[0.5, 0.1], [0.1, 0.3]]), np.array([[2.0, 0.3], [0.3, 1.0]])
    prior, mu, inv = np.array([[6.0, 1.0], [1.0, 4.0]]), np.array([0.4, 0.9]), np.linalg.inv
    pull = inv(A) @ c + inv(W) @ mu
    inner = inv(inv(A) + inv(W) - inv(prior))
    F5 = c @ inv(A) @ c + mu @ inv(W) @ mu - pull @ inner @ pull
    F6 = c @ inv(A) @ (A - inner) @ inv(A) @ c + mu @ inv(W + inv(inv(A) - inv(prior))) @ mu
    F6 -= 2.0 * mu @ inv(A + W - A @ inv(prior) @ W) @ c
    assert F6 == pytest.approx(F5, rel=1e-12)
    K2 = np.linalg.det(prior) / np.linalg.det(W + A - A @ inv(prior) @ W)
    t = Mixtures.of([[1.0]], [[c]], [[A]], np.zeros(2), prior)
    assert t.tilted(mu[None], W[None])[0][0] == pytest.approx(0.5 * math.log(K2) - 0.5 * F5, rel=1e-12)


# The local inverse.


def test_without_noise_the_true_wind_is_among_the_ambiguities() -> None:
    s = log_backscatter(WINDS, BEAMS)[0]
    a = retrieve_locally(s, BEAMS, NOISE, np.zeros(2), W0)
    here = a.nearest(WINDS)
    rows = np.arange(len(X))
    assert_allclose(a.winds[rows, here], WINDS, atol=1e-4)
    assert_allclose(a.misfits[rows, here], 0.0, atol=1e-8)
    counts = np.sum(np.isfinite(a.misfits), axis=1)
    assert counts.min() >= 2 and counts.max() <= 4
    assert_allclose(a.weights.sum(axis=1), 1.0)
    assert np.all(a.misfits[:, 1:] >= a.misfits[:, :-1])  # likeliest first
    opposite = np.sum(a.winds[:, 0] * a.winds[:, 1], axis=1)  # the second wind blows about the other way
    assert np.mean(opposite < 0.0) > 0.8


def test_minima_are_minima() -> None:
    s = measure(WINDS, BEAMS, NOISE, rng=1)
    a = retrieve_locally(s, BEAMS, NOISE, np.zeros(2), W0)
    for j in range(4):
        there = np.isfinite(a.misfits[:, j])
        model, J = log_backscatter(a.winds[:, j], BEAMS)
        slope = np.einsum("nbi,nb->ni", J, s - model) / NOISE
        curvature = np.trace(np.einsum("nbi,nbj->nij", J, J), axis1=1, axis2=2) / NOISE
        assert np.all(np.abs(slope[there]) < 1e-3 * np.sqrt(curvature[there, None]))


def test_the_prior_of_the_retrieval_divides_out() -> None:
    """The likelihood at each minimum is exp(-misfit), whatever prior the mixture was made with. [004 eq.
    5.33]
    """
    s = measure(WINDS, BEAMS, NOISE, rng=1)
    one = retrieve_locally(s, BEAMS, NOISE, np.zeros(2), W0)
    other = retrieve_locally(s, BEAMS, NOISE, WINDS + 1.0, 0.1 * W0)
    assert_allclose(one.winds, other.winds)
    at = np.random.default_rng(2).normal(size=(4, 25, 2)) * 5.0
    difference = np.stack([one.likelihood().log_density(z) - other.likelihood().log_density(z) for z in at])
    assert_allclose(difference - difference[0], 0.0, atol=1e-8)
    terms = np.stack([one.likelihood().log_terms(one.winds[:, j])[:, j] for j in range(2)], axis=1)
    assert_allclose(terms[:, 0] - terms[:, 1], one.misfits[:, 1] - one.misfits[:, 0], atol=1e-8)


# Whole fields.


@pytest.fixture(scope="module")
def measured() -> np.ndarray:
    return measure(WINDS, BEAMS, NOISE, rng=3)


def share(a: Any, winds: np.ndarray) -> float:
    return float(np.mean(a.nearest(winds) == a.nearest(WINDS)))


def test_modes_are_the_field_and_its_opposite(measured: np.ndarray) -> None:
    a = wind.ambiguities(KERNEL, measured, BEAMS, NOISE, X)
    assert_allclose(a.prior_covariance, np.tile(W0, (25, 1, 1)))
    found = wind.retrieve(KERNEL, a.likelihood(), X, orders=10, rng=0)
    assert max(share(a, found.winds(0)), share(a, found.winds(1))) >= 0.9
    assert np.mean(np.sum(found.winds(0) * found.winds(1), axis=1) < 0.0) > 0.9
    logs = [mode.log_weight for mode in found.modes]
    assert logs == sorted(logs, reverse=True) and sum(mode.orders for mode in found.modes) == 10
    assert found.weights.sum() == pytest.approx(1.0) and found.weights[0] == found.weights.max()
    for mode in found.modes[:2]:
        assert mode.posterior.sites.converged
        assert mode.log_weight == pytest.approx(mode.posterior.log_evidence, abs=0.5)
        assert mode.log_weight == pytest.approx(
            fields.relative_weight(mode.posterior, a.likelihood(), X), abs=1e-5
        )
    again = wind.retrieve(KERNEL, a.likelihood(), X, orders=10, rng=0)
    assert [mode.log_weight for mode in again.modes] == logs
    online = wind.retrieve(KERNEL, a.likelihood(), X, orders=10, sweeps=1, mirrored=False, rng=0)
    assert all(mode.posterior.sites.n_sweeps == 1 for mode in online.modes)


def test_a_forecast_chooses(measured: np.ndarray) -> None:
    rough = means.Field(X, WINDS.mean(axis=0) + np.zeros((25, 2)))
    error = DivergenceFree(2.0, 2.0) + CurlFree(2.0, 1.0) + Independent([2.0, 2.0])
    a = wind.ambiguities(error, measured, BEAMS, NOISE, X, mean=rough)
    assert_allclose(a.prior_mean, fields.unstack(rough(fields.stack(X))))
    found = wind.retrieve(error, a.likelihood(), X, mean=rough, orders=3, rng=0)
    assert share(a, found.winds()) >= 0.9
    assert np.sqrt(np.mean(np.sum((found.winds() - WINDS) ** 2, axis=1))) < 0.6
    assert found.weights[0] > 0.999


def test_the_mixture_of_modes_has_the_moments_of_a_mixture(measured: np.ndarray) -> None:
    a = wind.ambiguities(KERNEL, measured, BEAMS, NOISE, X)
    found = wind.retrieve(KERNEL, a.likelihood(), X, orders=4, rng=0)
    even = wind.Retrieval(tuple(wind.Mode(mode.posterior, 0.0, 1) for mode in found.modes[:2]), X)
    mean, covariance = even.predict(X[:3])
    parts = [fields.predict(mode.posterior, X[:3]) for mode in even.modes]
    assert_allclose(mean, 0.5 * (parts[0][0] + parts[1][0]), atol=1e-12)
    second = 0.5 * sum(c + m[:, :, None] * m[:, None, :] for m, c in parts)
    assert_allclose(covariance, second - mean[:, :, None] * mean[:, None, :], atol=1e-9)


@pytest.mark.parametrize(
    ("act", "error", "says"),
    [
        (lambda: measure(WINDS, BEAMS, 0.0), NoiseError, "but is 0"),
        (lambda: Beams(np.zeros((2, 3)), np.zeros((3, 3))), ShapeError, "azimuth"),
        (lambda: wind.retrieve(KERNEL, a_mixture(np.zeros(2))[0], X[:1], orders=0), ParameterError, "orders"),
    ],
)
def test_bad_input_is_refused(act: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        act()


# Real winds.


@pytest.fixture
def ascat() -> None:
    try:
        ig.datasets.path("ascat")
    except DataNotFoundError:
        pytest.skip("needs the file of ascat")


def test_scenes_are_whole_windows_of_the_swath(ascat: None) -> None:
    from experiments import wind_scenes

    passes = wind_scenes.granules()
    assert len(passes) == 13
    for granule in passes[:3]:
        for window in granule.windows[::400]:
            at = wind_scenes.EARTH * granule.places[window]
            for axis in (0, 1):
                assert_allclose(np.linalg.norm(np.diff(at, axis=axis), axis=-1), 25.0, atol=1.5)
        scene = granule.scenes(1)[0]
        middle = granule.windows[len(granule.windows) // 2]
        speeds = np.linalg.norm(
            granule.winds[middle], axis=-1
        )  # rows may be turned round, speeds hardly change in the plane
        assert_allclose(np.sort(np.hypot(*scene.winds.T)), np.sort(speeds.ravel()), rtol=2e-3)


def test_c13_in_its_quick_form(ascat: None, tmp_path: Any) -> None:
    from experiments import reproduce

    report = reproduce("C13", quick=True, folder=tmp_path)
    assert report.claims and report.holds
    assert {"ambiguities.png", "modes.png", "pruned.png", "weights.png"} <= {
        file.name for file in (tmp_path / "C13").iterdir()
    }


def test_an_assumed_site_acts_on_what_is_above_the_prior_mean():
    """One component a node: what assumes it is the Gaussian posterior, whatever the prior mean."""
    rng = np.random.default_rng(3)
    X, p = rng.normal(size=(4, 2)), 2
    centres, spread = rng.normal(size=(4, 1, p)), np.broadcast_to(0.3 * np.eye(p), (4, 1, p, p))
    t = Mixtures.of(np.ones((4, 1)), centres, spread)
    kernel, mean = DivergenceFree(1.5, 2.0), means.Constant(1.7)
    stacked = fields.stack(X, p)
    process = fields.FieldProcess(kernel, ig.bases.Points(stacked), mean, 1e-10, X, t)
    process.assume(np.zeros((4, p)))
    K = kernel(stacked, stacked)
    y = centres[:, 0].ravel() - 1.7
    expected = 1.7 + K @ np.linalg.solve(K + 0.3 * np.eye(len(K)), y)
    got = process.posterior().mean(stacked)
    assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sweeps", [2, 10])
def test_weakly_coupled_nodes_end_in_modes(sweeps: int) -> None:
    """Nine nodes that hardly see each other, each with two opposite winds: what is found is stationary, and
    the best of all 512 choices is among it.
    """
    nodes = np.stack(np.meshgrid(*[np.linspace(0, 5, 3)] * 2), axis=-1).reshape(-1, 2)
    kernel = DivergenceFree(4.0, 20.0) + CurlFree(4.0, 20.0)
    here, rows = np.random.default_rng(0).uniform(-6, 6, (9, 2)), np.arange(9)
    centres = np.stack([here, -here], axis=1)
    t = Mixtures.of(np.full((9, 2), 0.5), centres, np.broadcast_to(np.eye(2), (9, 2, 2, 2)))
    found = wind.retrieve(kernel, t, nodes, orders=40, sweeps=sweeps, apart=1e-3)
    K = kernel(fields.stack(nodes), fields.stack(nodes))

    def mean_of(choice: np.ndarray) -> np.ndarray:
        return fields.unstack(K @ np.linalg.solve(K + np.eye(18), centres[rows, choice].ravel()))

    choices = np.array([list(np.binary_repr(i, 9)) for i in range(512)], dtype=int)
    targets = np.array([centres[rows, choice].ravel() for choice in choices])
    values = -0.5 * np.sum(targets * np.linalg.solve(K + np.eye(18), targets.T).T, axis=1)
    best = mean_of(choices[int(np.argmax(values))])
    assert all(mode.settled for mode in found.modes) and found.weights.sum() == pytest.approx(1.0)
    winds = [found.winds(i) for i in range(len(found.modes))]
    assert min(np.abs(sign * z - best).max() for z in winds for sign in (1, -1)) < 0.1 * np.abs(best).max()
    decided = [np.abs(mean_of(np.argmax(t.log_terms(z), axis=1)) - z).max() for z in winds]
    assert np.median(decided) < 0.1 * np.abs(best).max()  # few nodes are torn between two winds


def test_modes_that_did_not_settle_have_no_weight(measured: np.ndarray, monkeypatch: Any) -> None:
    a = wind.ambiguities(KERNEL, measured, BEAMS, NOISE, X)
    monkeypatch.setattr(wind, "MOST_ROUNDS", 0)
    monkeypatch.setattr(wind, "CONVERGENCE", -1.0)
    with pytest.warns(IterationWarning, match="did not settle"):
        found = wind.retrieve(KERNEL, a.likelihood(), X, orders=2, rng=0)
    assert np.all(np.isnan(found.weights))
    with pytest.raises(ParameterError, match="no mode has settled"):
        found.predict(X)
