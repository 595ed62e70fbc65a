"""Numbers far out: one row leaves the others alone, and what cannot be handled is refused by name."""

from __future__ import annotations

import warnings
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing import errors
from inducing.errors import InducingError, NoiseError, NonFiniteError, ParameterError, ShapeError
from inducing.model.kernels.distances import middle
from inducing.numerics import workers

X = np.random.default_rng(0).normal(size=(40, 2))
y = np.sin(X[:, 0])
KERNELS = [ig.kernels.RBF, ig.kernels.Matern12, ig.kernels.Matern32, ig.kernels.Matern52]
KERNELS += [ig.kernels.RationalQuadratic]


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("n", [30, 200])
@pytest.mark.parametrize("far", [1e6, 1e14, 1e16, 9.97e36])
def test_one_far_row_leaves_the_others_alone(kind: Any, n: int, far: float) -> None:
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(n, 2))
    wide = np.vstack([Z, [[far, -far]]])
    kernel = kind([0.7, 1.3], 2.0)
    assert_allclose(kernel(wide, wide.copy())[:n, :n], kernel(Z, Z.copy()), rtol=1e-13, atol=1e-14)
    K = kernel(wide, wide.copy())
    assert K[n, n] == pytest.approx(2.0, rel=1e-14)
    near = kernel(np.zeros((1, 2)), wide)[0, n]  # no more than a power law leaves
    assert 0.0 <= near <= 4.0 * (far / 0.7) ** -2.0 + 1e-300


@pytest.mark.parametrize("kind", KERNELS)
def test_rows_with_a_common_offset_keep_their_distances(kind: Any) -> None:
    """At 2⁴⁶ a number has steps of 2⁻⁶: multiples of it are exact, and so are their differences."""
    rng = np.random.default_rng(1)
    Z = np.round(rng.normal(size=(30, 2)) * 8) / 8
    kernel = kind([3.0, 0.7], 1.0)
    assert_allclose(kernel(Z + 2.0**46, Z + 2.0**46), kernel(Z, Z), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("kind", KERNELS)
def test_gradients_with_a_far_row(kind: Any) -> None:
    """dJ/dℓ and dJ/dZ of J = Σ K̄∘K by differences of K in 40 digits."""
    rng = np.random.default_rng(1)
    Z = np.vstack([rng.normal(size=(5, 2)), [[1e14, 3e14]]])
    A = np.vstack([rng.normal(size=(4, 2)), Z[-1:]])
    Kbar = rng.normal(size=(5, 6))
    kernel = kind([0.7, 1.3], 2.0)
    gradients, Zbar = kernel.pullback(A, Z, Kbar.copy())
    near, near_Z = kernel.pullback(A[:4], Z[:5], Kbar[:4, :5].copy())
    assert_allclose(gradients["lengthscale"], near["lengthscale"], rtol=1e-10)
    own = 2.0 * Kbar[4, 5] / 2.0  # the far pair has K = variance, whatever the lengthscale
    assert gradients["variance"] == pytest.approx(near["variance"] + own, rel=1e-10)
    assert_allclose(Zbar[:5], near_Z, rtol=1e-10, atol=1e-12)
    assert_allclose(Zbar[5], 0.0, atol=1e-10)


def test_a_gradient_of_many_rows_with_a_far_one() -> None:
    """The compiled passes step aside; the gradient is that without the far row, which is alone."""
    rng = np.random.default_rng(1)
    wide, targets = rng.normal(size=(4000, 2)), rng.normal(size=4000)
    Z = wide[:60]
    far = np.vstack([wide, [[1e13, -1e13]]])
    kernel, noise = ig.kernels.RBF([0.7, 1.3], 2.0), 0.1
    options = dict(approximation="vfe", noise=noise)
    one, first = ig.log_evidence_and_gradient(kernel, ig.bases.Points(Z), X=wide, y=targets, **options)
    two, second = ig.log_evidence_and_gradient(
        kernel, ig.bases.Points(np.vstack([Z, far[-1:]])), X=far, y=np.append(targets, 0.5), **options
    )
    alone = float(mp.log(mp.npdf(0.5, 0, mp.sqrt(2.0 + noise))))
    assert two == pytest.approx(one + alone, rel=1e-9)
    assert_allclose(second["kernel.lengthscale"], first["kernel.lengthscale"], rtol=1e-6)


def test_a_fill_value_in_a_stream_leaves_the_rest_alone() -> None:
    """One netCDF fill value among 2,000 rows."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(-3.0, 3.0, size=(2000, 1))
    targets = np.sin(rows[:, 0]) + 0.01 * rng.normal(size=2000)
    spoiled = rows.copy()
    spoiled[1200] = 9.96921e36
    early = rows.copy()
    early[100] = 9.96921e36
    grid = np.linspace(-2.5, 2.5, 50)[:, None]
    for inputs in (rows, spoiled, early):
        model = ig.OnlineGPRegressor(n_inducing=40, warmup=300, random_state=0)
        for start in range(0, 2000, 500):
            model.partial_fit(inputs[start : start + 500], targets[start : start + 500])
        assert np.sqrt(np.mean((model.predict(grid) - np.sin(grid[:, 0])) ** 2)) < 0.02
    for kind in (ig.SparseGPRegressor, ig.SparseGPClassifier):
        wanted = targets if kind is ig.SparseGPRegressor else targets > 0
        fitted = kind(n_inducing=20, max_iter=20, random_state=0).fit(spoiled[1000:1400], wanted[1000:1400])
        got = fitted.predict(grid)
        wrong = np.abs(got - np.sin(grid[:, 0])) if kind is ig.SparseGPRegressor else got != (grid[:, 0] > 0)
        assert np.mean(wrong) < 0.05


def test_the_middle_is_a_median() -> None:
    assert_allclose(middle(np.array([[1.0, 5.0], [2.0, 1e30], [3.0, 4.0]])), [2.0, 5.0])
    assert_allclose(middle(np.zeros((0, 2))), [0.0, 0.0])


MASKED = np.ma.array(X.copy(), mask=np.zeros_like(X, dtype=bool))
MASKED[3, 0] = np.ma.masked
DATES = np.array(["2020-01-01", "NaT"] * 20, dtype="M8[D]")
WRONG = {
    "masked": MASKED,
    "dates": np.column_stack([DATES, DATES]),
    "times": np.column_stack([DATES - DATES[0]] * 2),
    "complex": X + 1j,
    "text": np.full((40, 2), "1_000"),
    "objects of text": np.full((40, 2), "١٢", dtype=object),
    "list of masked": list(MASKED),
    "list of dates": [list(row) for row in np.column_stack([DATES, DATES])],
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_number_is_refused(name: str) -> None:
    wrong: Any = WRONG[name]
    column = [row[0] for row in wrong] if isinstance(wrong, list) else wrong[:, 0]
    basis, kernel = ig.bases.Points(X[:5]), ig.kernels.RBF()
    post = ig.condition(kernel, basis, "fitc", 0.1, X, y)
    model = ig.SparseGPRegressor(n_inducing=5, max_iter=1).fit(X, y)
    calls = [
        lambda: ig.condition(kernel, basis, "fitc", 0.1, wrong, y),
        lambda: post.predict(wrong),
        lambda: ig.update(post, ig.likelihoods.Gaussian(0.1), wrong, y),
        lambda: ig.SparseGPRegressor(n_inducing=5, max_iter=1).fit(wrong, y),
        lambda: model.predict(wrong),
        lambda: ig.OnlineGPRegressor(warmup=10).partial_fit(wrong, y),
        lambda: ig.SparseGPClassifier(n_inducing=5, max_iter=1).fit(wrong, y > 0),
    ]
    if name != "list of masked":
        calls += [
            lambda: next(ig.as_source(np.asanyarray(wrong), y).parts()),
            lambda: ig.condition(kernel, basis, "fitc", 0.1, X, column),
            lambda: ig.update(post, ig.likelihoods.Gaussian(0.1), X, column),
            lambda: ig.SparseGPRegressor(n_inducing=5, max_iter=1).fit(X, column),
        ]
    for call in calls:
        with pytest.raises((InducingError, TypeError)):
            call()


@pytest.mark.parametrize("name", ["masked", "dates", "complex"])
def test_what_is_no_number_is_refused_wherever_numbers_are_given(name: str) -> None:
    """Weights, bases, parameters, spreads of inputs, scores: none takes what lies under a mask."""
    wrong: Any = {"masked": np.ma.abs(MASKED), "dates": DATES[:, None] + np.zeros(2, int), "complex": X + 1j}
    rows, column = wrong[name], wrong[name][:, 0]
    basis, kernel, regressor = ig.bases.Points(X[:5]), ig.kernels.RBF(), ig.SparseGPRegressor(n_inducing=5)
    post = ig.condition(kernel, basis, "fitc", 0.1, X, y)
    calls: list[Any] = [
        lambda: regressor.fit(X, y, sample_weight=column),
        lambda: regressor.fit(X, y, x_std=rows),
        lambda: ig.SparseGPClassifier(n_inducing=5).fit(X, y > 0, sample_weight=column),
        lambda: ig.GPDensity().fit(X, sample_weight=column),
        lambda: ig.condition(kernel, basis, "fitc", 0.1, X, y, weights=column),
        lambda: ig.condition(kernel, basis, "pitc", 0.1, X, y, blocks=column),
        lambda: ig.bases.Points(rows),
        lambda: ig.bases.Multiscale(X, rows),
        lambda: ig.kernels.RBF(column),
        lambda: ig.means.Linear(column),
        lambda: kernel(rows, X),
        lambda: kernel.diag(rows),
        lambda: post.paths(2, 0)(rows),
        lambda: ig.metrics.nlpd(column, y, np.ones(40)),
        lambda: ig.compare(rows, y),
        lambda: ig.compare(X, column),
    ]
    for i, call in enumerate(calls):
        with pytest.raises(InducingError) as caught:
            call()
        assert "\n" not in str(caught.value), i


def test_a_mask_without_masked_entries_is_no_obstacle() -> None:
    plain = np.ma.array(X, mask=False)
    assert ig.condition(ig.kernels.RBF(), ig.bases.Points(X[:5]), "fitc", 0.1, plain, y).log_evidence


@pytest.mark.parametrize("kind", KERNELS)
def test_magnitudes_beyond_the_domain_are_refused(kind: Any) -> None:
    kernel = kind(1.0, 1.0)
    with pytest.raises(NonFiniteError, match=r"X holds 1e\+155 in row 1, beyond 1e\+70"):
        kernel(np.array([[0.0], [1e155]]), np.zeros((1, 1)))
    for value in (1e-71, 1e71):
        with pytest.raises(ParameterError, match="must lie between 1e-70 and 1e\\+70"):
            kind(value, 1.0)


@pytest.mark.parametrize("kind", KERNELS)
def test_at_the_edge_of_the_domain_everything_is_finite(kind: Any) -> None:
    kernel = kind(1e-70, 1.0)
    A, Z = np.array([[1e70], [0.0]]), np.array([[-1e70], [0.0], [1e70]])
    K = kernel(A, Z)
    assert_allclose(K, [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], atol=1e-140)
    gradients, Zbar = kernel.pullback(A, Z, np.ones((2, 3)))
    assert all(np.all(np.isfinite(g)) for g in [*gradients.values(), Zbar])


@pytest.mark.parametrize("method", ["cg", "asor", "fitc", "exact", "rbcm", "gpoe", "poe", "bcm"])
@pytest.mark.parametrize("noise", [1e-300, 1e-17, 1e-30])
def test_tiny_noise_is_refused_or_gives_numbers(method: str, noise: float) -> None:
    options: dict[str, Any] = (
        {"blocks": np.arange(40) % 4} if method in ("rbcm", "gpoe", "poe", "bcm") else {}
    )
    basis = None if options or method in ("exact", "cg") else ig.bases.Points(X[:5])
    if noise == 1e-300:
        with pytest.raises(NoiseError, match="from 1e-70"):
            ig.condition(ig.kernels.RBF(), basis, method, noise, X, y, **options)
        return
    with np.errstate(all="raise", under="ignore"), pytest.warns() if method == "cg" else np.errstate():
        post = ig.condition(ig.kernels.RBF(), basis, method, noise, X, y, **options)
        mean, variance = post.predict(np.vstack([X[:3], X[:2] + 0.3]))
    rounding = 40 * np.finfo(float).eps  # of 1 - |φ|² with 40 terms; the core clips nothing
    assert np.all(np.isfinite(mean)) and np.all(np.isfinite(variance)) and np.all(variance >= -rounding)
    assert np.all(np.abs(mean) < 10.0)


@pytest.mark.parametrize("noise", [1e-14, 1e-16, 1e-30, 1e-60])
@pytest.mark.parametrize("method", ["exact", "cg", "bcm"])
def test_rows_all_alike_with_noise_that_rounding_drowns_are_refused(method: str, noise: float) -> None:
    """The mean of rows all alike is that of y, which K + Σ cannot say; means of 1024 and NaN came of it."""
    alike, y = np.full((40, 2), 0.3), np.random.default_rng(0).standard_normal(40)
    more: Any = {"blocks": np.arange(40) // 20} if method == "bcm" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(errors.FactorisationError, match="merge duplicate rows, or give more noise"):
            ig.condition(ig.kernels.RBF(), None, method, noise, alike, y, **more).predict(alike[:1])
        seen = ig.condition(ig.kernels.RBF(), None, method, 1e-10, alike, y, **more).predict(alike[:1])
    assert_allclose(seen.mean, y.mean(), atol=1e-3)


def test_targets_beyond_the_domain_are_refused() -> None:
    kernel, basis = ig.kernels.RBF(), ig.bases.Points(X[:5])
    with pytest.raises(NonFiniteError, match=r"y holds .* beyond 1e\+70"):
        ig.condition(kernel, basis, "fitc", 0.1, X, y * 1e200)
    for model in (ig.SparseGPRegressor(max_iter=1), ig.OnlineGPRegressor(warmup=10)):
        with pytest.raises(NonFiniteError, match=r"y holds .* beyond 1e\+152"):
            model.fit(X, y * 1e156)
    with pytest.raises((NonFiniteError, ShapeError), match="beyond"):
        next(ig.as_source(X * 1e80, y).parts())


@pytest.mark.parametrize("digits", [400, 5000])
def test_whole_numbers_beyond_floats_are_refused_by_name(digits: int) -> None:
    """Python's whole numbers have no end; NumPy's OverflowError is no sentence of this package."""
    big = 10**digits
    kernel, basis = ig.kernels.RBF(), ig.bases.Points(X[:5])
    table, model = [[big, 1.0]] * 40, ig.SparseGPRegressor(max_iter=1)
    calls: list[Any] = [
        lambda: ig.condition(kernel, basis, "vfe", 0.1, table, y),
        lambda: ig.condition(kernel, basis, "vfe", big, X, y),
        lambda: ig.condition(kernel, basis, "vfe", 0.1, X, y, weights=[big] * 40),
        lambda: ig.kernels.RBF(big),
        lambda: model.fit(table, y),
        lambda: model.fit(X, [big] * 40),
    ]
    for call in calls:
        with pytest.raises(InducingError, match="a whole number beyond 1.8e.308"):
            call()


def test_targets_whose_squares_lose_digits_are_refused() -> None:
    """With y of 1e-160 error bars were off by a hundredth; a batch of a stream may be as small as it is."""
    for model in (ig.SparseGPRegressor(max_iter=1), ig.OnlineGPRegressor(warmup=10, max_iter=1)):
        with pytest.raises(NonFiniteError, match=r"y spreads by .*e-157, too little; use other units"):
            model.fit(X, y * 1e-156)
        mean, std = model.fit(X, y * 1e-149).predict(X, return_std=True)
        one = model.fit(X, y).predict(X, return_std=True)
        assert_allclose([mean * 1e149, std * 1e149], one, rtol=1e-6)
    stream = ig.OnlineGPRegressor(warmup=10, max_iter=1).fit(X, y)
    assert np.all(np.isfinite(stream.partial_fit(X[:5], 1e-200 * y[:5]).predict(X)))


@pytest.mark.parametrize("std", [-1.0, np.nan, np.inf])
def test_spreads_of_inputs_that_are_none_are_refused(std: float) -> None:
    with pytest.raises(ShapeError, match="x_std must hold standard deviations of zero or more"):
        ig.SparseGPRegressor(n_inducing=5).fit(X, y, x_std=std)


@pytest.mark.parametrize("column", ["x", "y"])
@pytest.mark.parametrize("value", [9.96921e36, -1e35])
def test_fill_values_in_a_source_are_refused_by_place(tmp_path: Any, column: str, value: float) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rows = np.linspace(0.0, 3.0, 300)
    for i in range(3):
        table = pandas.DataFrame({"x": rows[100 * i : 100 * (i + 1)], "y": np.sin(rows[:100])})
        if i == 1:
            table.loc[40, column] = value
        table.to_parquet(tmp_path / f"{i}.parquet")
    with pytest.raises(errors.NonFiniteError, match=f"'{column}' holds .*missing.*1.parquet.*row 40"):
        ig.SparseGPRegressor(n_inducing=5, max_iter=2).fit(ig.as_source(tmp_path, "y"))


def test_fill_values_among_targets_are_refused() -> None:
    rows, targets = np.linspace(0.0, 3.0, 600)[:, None], np.sin(np.linspace(0.0, 3.0, 600))
    spoiled = targets.copy()
    spoiled[501] = 9.96921e36
    with pytest.raises(errors.NonFiniteError, match="9.96921e\\+36 in row 501"):
        ig.SparseGPRegressor(n_inducing=5, max_iter=2).fit(rows, spoiled)
    model = ig.OnlineGPRegressor(n_inducing=10, warmup=100, random_state=0).partial_fit(rows, targets)
    before = model.predict(rows)
    for some in (slice(501, 502), slice(400, 600)):  # alone, it is what is usual
        with pytest.raises(errors.NonFiniteError, match="in row"):
            model.partial_fit(rows[some], spoiled[some])
    np.testing.assert_array_equal(model.predict(rows), before)
    large = ig.condition(
        ig.kernels.RBF(1.0, 1e62), ig.bases.Points(rows[::50]), "vfe", 1e60, rows, 1e32 * targets
    )
    assert np.all(np.isfinite(large.predict(rows)[0]))  # where all are large, none is a fill value


class Gap(ig.kernels.RBF):
    """A kernel without a number beyond 2.5."""

    def _matrix(self, X: Any, Z: Any, *more: Any, **options: Any) -> Any:
        K = np.array(super()._matrix(X, Z, *more, **options))
        return np.where(np.asarray(X)[:, :1] > 2.5, np.nan, K)


@pytest.mark.parametrize("row", ["exact", "vfe", "fitc"])
def test_a_kernel_without_a_number_is_named(row: str) -> None:
    X = np.linspace(0.0, 3.0, 40)[:, None]
    basis = None if row == "exact" else ig.bases.Points(X[::8])
    with pytest.raises(errors.FactorisationError, match="kernel"):
        ig.condition(Gap(), basis, row, 0.1, X, np.sin(X[:, 0])).predict(X)


@pytest.mark.parametrize("basis", [None, ig.bases.Points(np.linspace(0.0, 2.0, 4)[:, None])])
def test_a_kernel_without_a_number_ends_online_steps(basis: Any) -> None:
    X, labels = np.linspace(0.0, 3.0, 40)[:, None], np.where(np.arange(40) % 3, 1.0, -1.0)
    with pytest.raises(errors.NonFiniteError, match="kernel"):
        ig.expectation_propagation(Gap(), ig.likelihoods.Probit(), X, labels, basis=basis)
    with pytest.raises(errors.NonFiniteError, match="kernel"):
        ig.update(ig.prior(Gap(), basis=basis), ig.likelihoods.Gaussian(0.1), X, labels)


def test_conjugate_gradients_on_a_singular_matrix() -> None:
    X = np.random.default_rng(0).uniform(0, 6, (200, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = ig.log_evidence(ig.kernels.RBF(1e6), None, "cg", 1e-14, X, np.sin(X[:, 0]))
            assert np.isfinite(value)
        except errors.FactorisationError as error:
            assert "more noise" in str(error)


def test_reading_ends_at_the_row_without_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where rows are read in slices: none is read after it."""
    X = np.linspace(0.0, 3.0, 40)[:, None]
    bad = int(np.argmax(X[:, 0] > 2.5))
    monkeypatch.setattr(workers, "UNHEARD", 1.0)
    with pytest.raises(errors.NonFiniteError, match=f"row {bad} leaves"):
        ig.update(ig.prior(Gap()), ig.likelihoods.Gaussian(0.1), X, np.sin(X[:, 0]))


def test_what_was_read_before_a_bad_row_is_forgotten() -> None:
    X = np.random.default_rng(2).uniform(0.0, 2.4, size=(60, 1))
    y = np.sin(X[:, 0])
    spoiled = X[20:40].copy()
    spoiled[-1] = 2.9
    models = [ig.OnlineGPRegressor(Gap(), 10, noise=0.1, optimize=None, warmup=10) for _ in range(2)]
    for model in models:
        model.partial_fit(X[:20], y[:20])
    with pytest.raises(errors.NonFiniteError):
        models[0].partial_fit(spoiled, y[20:40])
    for model in models:
        model.partial_fit(X[40:], y[40:])
    np.testing.assert_array_equal(models[0].predict(X), models[1].predict(X))


def test_whole_numbers_that_floats_do_not_tell_apart_are_refused() -> None:
    """2⁵³ + 1 is no float; nanoseconds since 1970 lose less than a millionth of a day's range, and pass."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 1)), rng.normal(size=40)
    near = 2**53 + np.arange(40)
    model = ig.SparseGPRegressor(n_inducing=3, max_iter=1, random_state=0)
    for rows, targets, name in ((near[:, None], y, "X"), (X, near, "y"), (X, near.astype(np.uint64), "y")):
        with pytest.raises(ShapeError, match=f"{name} holds whole numbers that floats do not tell apart"):
            model.fit(rows, targets)
    day = 1_700_000_000_000_000_000 + rng.integers(0, 86_400 * 10**9, size=(40, 1))
    rows = np.hstack([day, np.full((40, 1), 2**60)])  # a constant loses nothing
    assert np.all(np.isfinite(model.fit(rows, y).predict(rows)))


def test_quantiles_and_prior_means_that_are_none_are_refused() -> None:
    X = np.random.default_rng(0).normal(size=(40, 1))
    model = ig.SparseGPRegressor(n_inducing=3, max_iter=1, random_state=0).fit(X, X[:, 0])
    for wrong in ([], 0.0, [0.5, 1.0], np.nan):
        with pytest.raises(
            ParameterError, match="probability of a quantile must lie between 0 and 1, but is"
        ):
            model.predict_quantiles(X, wrong)
    with pytest.raises(ParameterError, match="mean must be None or one of inducing.means, but is 'x'"):
        ig.SparseGPRegressor(mean="x", n_inducing=3).fit(X, X[:, 0])  # type: ignore[arg-type]


def test_nothing_under_a_mask_is_scored() -> None:
    X = np.random.default_rng(0).normal(size=(40, 1))
    y, ones = np.ma.masked_less(X[:, 0], -1.0), np.ma.masked_array(np.ones(40), np.arange(40) < 3)
    assert 0 < np.sum(y.mask) < 20
    model = ig.SparseGPRegressor(n_inducing=3, max_iter=1, random_state=0).fit(X, X[:, 0])
    with pytest.raises(ShapeError, match="y has masked entries"):
        model.score(X, y)
    with pytest.raises(ShapeError, match="sample_weight has masked entries"):
        model.score(X, X[:, 0], ones)
    labels = ig.SparseGPClassifier(n_inducing=3, max_iter=1, random_state=0).fit(X, X[:, 0] > 0)
    with pytest.raises(ShapeError, match="y has masked entries"):
        labels.score(X, np.ma.masked_array(X[:, 0] > 0, np.arange(40) < 3))
    assert labels.score(X, X[:, 0] > 0) == np.mean(labels.predict(X) == (X[:, 0] > 0))
