"""Augmentation against dense conditioning on u and f* together. [003 §8.1]"""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
import oracle
import oracle_beside as dense
from inducing import errors
from inducing.beside import augmentation

ROWS = ("sor", "dtc", "vfe", "fitc", "fic", "pep", "pitc", "pic")
BASES = ("points", "multiscale")
LENGTHSCALE, VARIANCE, NOISE = np.array([0.9, 1.3]), 1.7, 0.09
KERNEL = ig.kernels.RBF(LENGTHSCALE, VARIANCE)
K0 = oracle.bind(oracle.rbf, lengthscale=LENGTHSCALE, variance=VARIANCE)

rng = np.random.default_rng(7)
X = rng.uniform(-2, 2, (43, 2))
XS = rng.uniform(-2.5, 2.5, (9, 2))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.standard_normal(43)
Y2 = np.stack([Y, np.cos(X[:, 1]) - 0.4], axis=1)
NOISES = rng.uniform(0.02, 0.4, 43)
LABELS = np.repeat([4, 0, 7, -1], [20, 3, 1, 19])[rng.permutation(43)]
Z = np.array([[-1.6, -1.2], [-1.0, 1.3], [0.1, -0.2], [0.8, 1.7], [1.5, -1.4], [1.9, 0.6]])
WIDTHS = np.array([[0.9, 1.3], [1.1, 1.0], [0.7, 1.9], [1.4, 1.4], [2.3, 1.1], [0.8, 2.5]])


def bases(kind: str, jitter: float = 1e-8) -> tuple[Any, oracle.Basis]:
    if kind == "points":
        return ig.bases.Points(Z), oracle.jittered(oracle.points(K0, Z), jitter)
    return ig.bases.Multiscale(Z, WIDTHS), oracle.jittered(
        oracle.multiscale(Z, WIDTHS, LENGTHSCALE, VARIANCE), jitter
    )


def keywords(name: str) -> dict[str, Any]:
    return {"blocks": LABELS} if name in oracle.BLOCKED else {"power": 0.4} if name == "pep" else {}


def prior_name(name: str) -> str:
    return "pitc" if name == "pic" else name  # with f* in the basis its own block has nothing to add


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("noise", [NOISE, NOISES], ids=["scalar noise", "row noise"])
@pytest.mark.parametrize("name", ROWS)
def test_each_query_alone(name: str, noise: Any, y: Any, kind: str) -> None:
    basis, reference = bases(kind)
    mean, variance = augmentation.condition(KERNEL, basis, name, noise, X, y, **keywords(name)).predict(XS)
    expected = dense.augmented(prior_name(name), K0, reference, noise, X, y, XS, **keywords(name))
    assert_allclose(mean, expected[0], rtol=1e-8, atol=1e-10)
    assert_allclose(variance, expected[1], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("name", ROWS)
def test_all_queries_together(name: str, kind: str) -> None:
    """Joint augmentation: u and all of f* in the basis."""
    basis, reference = bases(kind, 0.0)
    predictor = augmentation.condition(KERNEL, basis, name, NOISES, X, Y, jitter=0.0, **keywords(name))
    whole = dense.with_points(K0, reference, XS)
    prior = oracle.joint_prior(prior_name(name), K0, whole, X, XS, **keywords(name))
    mean, cov = oracle.condition(prior, NOISES, Y)
    assert_allclose(predictor.jointly(XS).predict(XS)[0], mean, rtol=1e-7, atol=1e-8)
    assert_allclose(predictor.covariance(XS), cov, rtol=1e-7, atol=1e-8)


def test_augmented_sor_is_augmented_dtc() -> None:
    """[003 Remark 12], one at a time and together; `condition` knows it as asor."""
    basis, _ = bases("points")
    asor = ig.condition(KERNEL, basis, "asor", NOISES, X, Y)
    adtc = augmentation.condition(KERNEL, basis, "dtc", NOISES, X, Y)
    for first, second in zip(asor.predict(XS), adtc.predict(XS), strict=True):
        assert_allclose(first, second, rtol=1e-8)
    sor, dtc = (ig.condition(KERNEL, basis, name, NOISES, X, Y).predict(XS) for name in ("sor", "dtc"))
    assert np.max(np.abs(sor.variance - dtc.variance)) > 0.1  # they are not the same before
    expected = dense.augmented("dtc", K0, bases("points")[1], NOISES, X, Y, XS)
    assert_allclose(asor.predict(XS).variance, expected[1], rtol=1e-8)
    asor, adtc = (
        augmentation.condition(KERNEL, basis, name, NOISES, X, Y, jitter=0.0) for name in ("sor", "dtc")
    )
    assert_allclose(asor.covariance(XS), adtc.covariance(XS), rtol=1e-7, atol=1e-8)


def test_it_heals_the_degenerate_prior() -> None:
    """Far from every basis function SoR is certain of nothing there; augmented, it has the prior's variance.
    [003 §8.1]
    """
    far = np.array([[30.0, -40.0]])
    basis, _ = bases("points")
    assert_allclose(ig.condition(KERNEL, basis, "sor", NOISE, X, Y).predict(far).variance, 0.0, atol=1e-12)
    assert_allclose(
        ig.condition(KERNEL, basis, "asor", NOISE, X, Y).predict(far).variance, VARIANCE, rtol=1e-12
    )


@pytest.mark.parametrize("name", ROWS)
def test_a_query_in_the_basis_adds_nothing(name: str) -> None:
    basis, _ = bases("points", 0.0)
    predictor = augmentation.condition(KERNEL, basis, name, NOISES, X, Y, jitter=0.0, **keywords(name))
    for first, second in zip(predictor.predict(Z), predictor.posterior.predict(Z), strict=True):
        assert_allclose(first, second, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["sor", "dtc", "fitc", "pitc"])
def test_a_full_gaussian_process_cannot_be_augmented(name: str) -> None:
    """[003 Remark 11]: with a basis on every row the training conditional is exact, and f* adds nothing to
    it.
    """
    A, y, labels = X[:15], Y[:15], LABELS[:15]
    k = oracle.bind(oracle.rbf, lengthscale=0.6, variance=1.0)
    predictor = augmentation.condition(
        ig.kernels.RBF(0.6, 1.0),
        ig.bases.Points(A),
        name,
        NOISE,
        A,
        y,
        jitter=0.0,
        blocks=labels if name == "pitc" else None,
    )
    mean, cov = dense.exact(k, NOISE, A, y, XS)
    found = predictor.predict(XS)
    assert_allclose(found.mean, mean, rtol=1e-7, atol=1e-8)
    assert_allclose(found.variance, np.diag(cov), rtol=1e-7)
    for name in ("exact", "sod"):
        with pytest.raises(errors.ParameterError, match="cannot be augmented"):
            augmentation.condition(KERNEL, ig.bases.Points(A), name, NOISE, A, y)


def test_transduction_is_dependence_on_the_other_queries() -> None:
    """[003 Definition 9]: together the queries depend on each other, one at a time they do not."""
    basis, _ = bases("points")
    predictor = ig.condition(KERNEL, basis, "asor", NOISE, X, Y)
    alone, among = predictor.predict(XS[:1]), predictor.predict(XS)
    assert_allclose(alone.variance[0], among.variance[0], rtol=1e-12)
    joint = predictor.covariance(XS)
    assert abs(joint[0, 0] / predictor.covariance(XS[:1])[0, 0] - 1) > 1e-3
    assert_allclose(predictor.covariance(XS[:1])[0, 0], alone.variance[0], rtol=1e-6)  # together with nobody


def test_better_than_dtc_on_the_toy() -> None:
    """[003 Remark 13, Fig 5]: closer to the exact GP, in mean and in variance, on the toy of that figure."""
    from experiments.unifying_view import toy

    t = toy()
    exact = ig.condition(t.kernel, None, "exact", t.noise, t.X, t.y).predict(t.grid)
    dtc = ig.condition(t.kernel, t.basis, "dtc", t.noise, t.X, t.y).predict(t.grid)
    asor = ig.condition(t.kernel, t.basis, "asor", t.noise, t.X, t.y).predict(t.grid)

    def kl(found: Any) -> float:
        ratio = exact.variance / found.variance
        return float(
            np.mean(0.5 * ((exact.mean - found.mean) ** 2 / found.variance + ratio - 1 - np.log(ratio)))
        )

    assert np.mean((asor.mean - exact.mean) ** 2) < 0.5 * np.mean((dtc.mean - exact.mean) ** 2)
    assert kl(asor) < 0.5 * kl(dtc)


@pytest.mark.parametrize("name", ["dtc", "fitc", "pep", "pitc"])
def test_weights_and_prior_mean(name: str) -> None:
    rng = np.random.default_rng(100)
    weights = rng.integers(0, 3, 43)
    basis, reference = bases("points")
    row = keywords(name)
    predictor = augmentation.condition(
        KERNEL, basis, name, NOISES, X, Y + 0.7, weights=weights, mean=ig.means.Constant(0.7), **row
    )
    noises, A, y = oracle.repeat(weights, NOISES, X, Y)
    if "blocks" in row:
        row = {"blocks": oracle.repeat(weights, LABELS)[0]}
    expected = dense.augmented(name, K0, reference, noises, A, y, XS, **row)
    mean, variance = predictor.predict(XS)
    assert_allclose(mean, expected[0] + 0.7, rtol=1e-8, atol=1e-9)
    assert_allclose(variance, expected[1], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["asor", "fitc"])
def test_chunks_of_rows_and_queries(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough rows and queries for several chunks and all workers; FITC's B̃ for a few queries at a time."""
    rng = np.random.default_rng(101)
    monkeypatch.setattr(augmentation, "SPACE", 7 * len(Z) ** 2)
    A = rng.uniform(-2, 2, (9000, 2))
    y = np.sin(2 * A[:, 0])
    queries = np.concatenate([rng.uniform(-2, 2, (291 if name == "asor" else 11, 2)), XS])
    predictor = augmentation.condition(KERNEL, ig.bases.Points(Z), name, NOISE, A, y)
    found = predictor.predict(queries)
    reference = bases("points")[1]
    for i in (0, 5, len(queries) - 1):
        x = queries[i : i + 1]
        whole = dense.with_points(K0, reference, x)
        mean, cov, _ = oracle.low_rank("dtc" if name == "asor" else name, K0, whole, NOISE, A, y, x)
        assert_allclose(found.mean[i], mean[0], rtol=1e-6)
        assert_allclose(found.variance[i], cov[0, 0], rtol=1e-5)


def test_refusals() -> None:
    with pytest.raises(errors.ParameterError, match="needs a basis"):
        ig.condition(KERNEL, None, "asor", NOISE, X, Y)
    with pytest.raises(errors.UnknownNameError, match="there is no approximation 'laplace'"):
        augmentation.condition(KERNEL, ig.bases.Points(Z), "laplace", NOISE, X, Y)
    with pytest.raises(errors.ShapeError, match="X has 1 columns"):
        ig.condition(KERNEL, ig.bases.Points(Z), "asor", NOISE, X, Y).predict(np.zeros((2, 1)))
    assert ig.condition(KERNEL, ig.bases.Points(Z), "asor", NOISE, X, Y2).predict(
        np.empty((0, 2))
    ).mean.shape == (0, 2)
