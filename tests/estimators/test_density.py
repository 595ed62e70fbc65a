"""`GPDensity`: integrals, units, draws, files, refusals, and scikit-learn's contract. The mathematics is in
test_squared.
"""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import inducing as ig
from experiments import reproduce
from inducing.beside import squared
from inducing.beside.squared import Fourier, estimate
from inducing.errors import (
    EmptyDataError,
    InducingError,
    NonFiniteError,
    ParameterError,
    ShapeError,
    UnknownNameError,
)
from oracle_density import in_panels, mixture, waves


@pytest.mark.parametrize(("d", "n"), [(1, 400), (2, 200), (3, 150)])
def test_densities_integrate_to_one_and_are_never_negative(d, n):
    model = ig.GPDensity(max_functions=150).fit(mixture(n, d))
    points = (
        4 * model.order_ + 1
    )  # a grid of more than 4 order points integrates the square of a series exactly
    axis = np.arange(points) / points
    grid = model.low_ + model.span_ * np.stack(np.meshgrid(*[axis] * d), axis=-1).reshape(-1, d)
    density, deviation = model.pdf(grid, return_std=True)
    assert abs(np.mean(density) * np.prod(model.span_) - 1.0) < 1e-9
    assert density.min() > 0 and deviation.min() > 0
    if d == 1:
        low = model.low_[0]
        assert (
            abs(
                quad(lambda x: model.pdf([[x]])[0], low, low + model.span_[0], limit=200, epsabs=1e-9)[0]
                - 1.0
            )
            < 1e-7
        )


def test_rough_densities_integrate_to_one():
    model = ig.GPDensity("ornstein-uhlenbeck").fit(mixture(120))
    low, span = model.low_[0], model.span_[0]
    edges = np.concatenate([[low], low + span * model.posterior_.basis.Z[:, 0], [low + span]])
    assert abs(in_panels(lambda x: model.pdf(x[:, None]), edges) - 1.0) < 1e-9
    assert model.lengthscale_ in model.scores_ and model.scores_[model.lengthscale_] == max(
        model.scores_.values()
    )
    drawn = model.sample(500, random_state=0)
    assert drawn.shape == (500, 1) and np.all((drawn >= low) & (drawn <= low + span))


@pytest.fixture(scope="module")
def model():
    return ig.GPDensity().fit(mixture(500))


def test_error_falls_below_a_histograms_and_stays_near_kernel_densitys(model):
    from sklearn.neighbors import KernelDensity

    rng = np.random.default_rng(7)
    X = np.where(rng.random(500) < 0.4, rng.normal(0.3, 0.08, 500), rng.normal(0.7, 0.06, 500)).clip(0, 1)[
        :, None
    ]
    grid = (np.arange(800) + 0.5) / 800
    normal = lambda mean, std: np.exp(-0.5 * ((grid - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))  # noqa: E731
    truth = 0.4 * normal(0.3, 0.08) + 0.6 * normal(0.7, 0.06)
    error = lambda density: np.sqrt(np.mean((density - truth) ** 2))  # noqa: E731
    fitted = ig.GPDensity(order=5, bounds=(0, 1)).fit(X)
    histogram = min(
        error(np.histogram(X, b, (0, 1), density=True)[0][(grid * b).astype(int)]) for b in range(4, 60)
    )
    parzen = min(
        error(np.exp(KernelDensity(bandwidth=h).fit(X).score_samples(grid[:, None])))
        for h in np.geomspace(0.01, 0.1, 15)
    )
    assert fitted.basis_size_ == 11 and fitted.converged_
    assert error(fitted.pdf(grid[:, None])) < min(histogram, 1.2 * parzen)


def test_the_order_of_a_series_is_found():
    """Draws from f² with f a series of order 2, by rejection."""
    rng = np.random.default_rng(8)
    xi = np.array([1.0, 0.3, -0.2, 0.1, 0.15])  # f > 0
    x = rng.random((20_000, 1))
    density = (waves(x, 2) @ xi) ** 2 / (xi @ xi)
    X = x[rng.random(20_000) * 3.0 < density][:1500]
    assert density.max() < 3.0 and len(X) == 1500
    model = ig.GPDensity(bounds=(0, 1)).fit(X)
    assert model.order_ == 2
    grid = np.linspace(0, 1, 100)[:, None]
    found, deviation = model.pdf(grid, return_std=True)
    truth = (waves(grid, 2) @ xi) ** 2 / (xi @ xi)
    assert np.mean(np.abs(found - truth) < 2 * deviation) > 0.85
    assert np.sqrt(np.mean((found - truth) ** 2)) < 3 * np.sqrt(5 / 1500)  # ISE is about D/N


def test_scores_are_logarithms_and_nothing_lies_beyond_the_box(model):
    X = mixture(50, seed=1)
    assert_allclose(model.score_samples(X), np.log(model.pdf(X)))
    assert_allclose(model.score(X), np.sum(np.log(model.pdf(X))))
    far = np.vstack([model.low_ - 1e-9 * model.span_, model.low_ + 2 * model.span_])
    density, deviation = model.pdf(far, return_std=True)
    assert_array_equal(density, 0.0)
    assert_array_equal(deviation, 0.0)
    assert_array_equal(model.score_samples(far), -np.inf)


def test_units_order_and_weights_of_the_rows(model):
    X, grid = mixture(500), np.linspace(80, 130, 30)[:, None]
    other = ig.GPDensity().fit(X[::-1] * 1000 + 7)
    assert other.order_ == model.order_
    assert_allclose(other.pdf(grid * 1000 + 7) * 1000, model.pdf(grid), rtol=1e-6, atol=1e-12)
    assert_allclose(other.log_evidence_ + 500 * np.log(1000), model.log_evidence_, rtol=1e-8)
    weights = np.random.default_rng(9).integers(0, 4, 500)
    weighted = ig.GPDensity(order=3).fit(X, sample_weight=weights)
    repeated = ig.GPDensity(order=3).fit(np.repeat(X, weights, axis=0))
    assert_array_equal(weighted.pdf(grid), repeated.pdf(grid))
    U, V = (X - weighted.low_) / weighted.span_, (grid - weighted.low_) / weighted.span_
    once, apart = (
        estimate(Fourier(3), U[weights > 0], weights[weights > 0]),
        estimate(Fourier(3), np.repeat(U, weights, axis=0)),
    )
    assert_allclose(
        once.density(V)[0], apart.density(V)[0], rtol=2e-3
    )  # one site for f^2w is not quite w sites for f²


def test_bounds_make_a_circle():
    hours = np.random.default_rng(10).normal(0.5, 2.0, (300, 1)) % 24.0
    model = ig.GPDensity(bounds=(0.0, 24.0)).fit(hours)
    assert_allclose(model.pdf([[0.0]]), model.pdf([[24.0]]), rtol=1e-9)
    assert model.pdf([[23.5]]) > 5 * model.pdf([[12.0]])


def test_draws_have_the_density(model):
    X = model.sample(4000, random_state=0)
    grid = np.linspace(0.0, 1.0, 4001)[:, None] * model.span_ + model.low_
    cdf = np.concatenate(
        [[0.0], np.cumsum(0.5 * np.diff(grid[:, 0]) * (model.pdf(grid)[1:] + model.pdf(grid)[:-1]))]
    )
    rank = np.interp(np.sort(X[:, 0]), grid[:, 0], cdf)
    assert np.max(np.abs(rank - (np.arange(4000) + 0.5) / 4000)) < 1.63 / np.sqrt(4000)  # Kolmogorov, at 1 %
    assert_array_equal(X, model.sample(4000, random_state=0))
    assert model.sample(0).shape == (0, 1) and model.sample().shape == (1, 1)
    assert model._bound() > np.max(
        squared.moments(model.posterior_, np.random.default_rng(0).random((20_000, 1)))[0]
    )
    with pytest.raises(ParameterError, match="n_samples"):
        model.sample(1.5)


def test_cross_validation_and_frames():
    frame = pd.DataFrame(mixture(120, 2), columns=["a", "b"])
    model = ig.GPDensity(order=2).fit(frame)
    assert list(model.feature_names_in_) == ["a", "b"]
    scores = cross_val_score(ig.GPDensity(order=2, padding=0.5), frame, cv=3)
    assert np.all(np.isfinite(scores))


FILED = [{}, {"kernel": "ornstein-uhlenbeck", "lengthscale": 6.0}, {"bounds": [[50.0, 150.0]], "order": 4}]


@pytest.mark.parametrize("options", FILED, ids=str)
def test_files(options, tmp_path):
    X = mixture(80)
    model = ig.GPDensity(**options).fit(X)
    model.save(tmp_path / "density", metadata={"of": "x"})
    again = ig.load(tmp_path / "density")
    assert (
        type(again) is ig.GPDensity
        and again.get_params() == model.get_params()
        and again.metadata_ == {"of": "x"}
    )
    for one, two in zip(model.pdf(X, return_std=True), again.pdf(X, return_std=True), strict=True):
        assert_array_equal(one, two)
    assert_array_equal(model.sample(20, random_state=1), again.sample(20, random_state=1))
    known = [
        "lam_",
        "mass_",
        "scores_",
        "log_evidence_",
        "n_iter_",
        "converged_",
        "basis_size_",
        "n_features_in_",
    ]
    for name in [*known, "lengthscale_" if "kernel" in options else "order_"]:
        assert getattr(again, name) == getattr(model, name), name
    assert_array_equal(again.fit(X).pdf(X), model.pdf(X))


BAD = {
    "kernel": (
        {"kernel": "rbf"},
        mixture(20),
        UnknownNameError,
        "kernel must be one of trigonometric, ornstein-uhlenbeck, not 'rbf'",
    ),
    "two inputs": ({"kernel": "ornstein-uhlenbeck"}, mixture(20, 2), ShapeError, "one input, but X has 2"),
    "order": ({"order": 0}, mixture(20), ParameterError, "order"),
    "half an order": ({"order": 1.5}, mixture(20), ParameterError, "order"),
    "lengthscale": (
        {"kernel": "ornstein-uhlenbeck", "lengthscale": -1.0},
        mixture(20),
        ParameterError,
        "length",
    ),
    "padding": ({"padding": -0.1}, mixture(20), ParameterError, "padding"),
    "bounds": ({"bounds": (3.0, 1.0)}, mixture(20), ParameterError, "bounds must be 1 pairs"),
    "no bounds": ({"bounds": "wide"}, mixture(20), ParameterError, "bounds must be 1 pairs"),
    "rows beyond": ({"bounds": (0.0, 1.0)}, mixture(20), ParameterError, "is outside"),
    "constant": ({}, np.ones((9, 1)), ParameterError, "column 0 of X is constant"),
    "damping": ({"damping": 2.0}, mixture(20), ParameterError, "damping"),
    "functions": ({"max_functions": 8}, mixture(20, 2), ParameterError, "order 1 has 9 functions"),
    "one row": ({}, np.ones((1, 1)), EmptyDataError, "1 sample"),
    "nan": ({}, np.array([[0.0], [np.nan], [1.0]]), NonFiniteError, "NaN"),
}


@pytest.mark.parametrize(("options", "X", "error", "text"), BAD.values(), ids=BAD)
def test_what_is_refused(options, X, error, text):
    with pytest.raises(error, match=text) as caught:
        ig.GPDensity(**options).fit(X)
    assert isinstance(caught.value, InducingError)


def test_a_fit_cut_short_says_so():
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model = ig.GPDensity(order=4, max_iter=1).fit(mixture(100))
    assert not model.converged_ and model.n_iter_ == 1


def too_many_inputs(estimator):
    """Checks on tables of ten inputs and more, where order 1 already has 59049 functions."""
    return dict.fromkeys(
        ("check_dtype_object", "check_sample_weight_equivalence_on_dense_data"), "at least ten inputs"
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # 30 rows, 27 functions
@parametrize_with_checks([ig.GPDensity(order=1)], expected_failed_checks=too_many_inputs)
def test_scikit_learns_contract(estimator, check):
    check(estimator)


def test_c12(tmp_path):
    report = reproduce("C12", quick=True, folder=tmp_path)
    assert json.loads((tmp_path / "C12" / "values.json").read_text(encoding="utf-8"))
    assert set(report.pictures) == {"density", "sizes"}
    few = ("with k₀ by evidence",)  # repeats cannot settle it
    assert [
        claim.text for claim in report.claims if claim.holds is False and not claim.text.startswith(few)
    ] == []
    assert report.values["basis vectors"] == [11] * len(report.values["basis vectors"])


def test_deviations_and_evidence_in_the_units_of_any_box():
    """x → 3x + 5 divides density and deviation by 3 in each input; a weight is so many rows, there too."""
    rows = np.random.default_rng(4).beta(2.0, 3.0, (25, 2))
    weights = np.random.default_rng(5).integers(1, 4, 25)
    options = dict(order=2, bounds=[[0.0, 1.0], [0.0, 1.0]])
    plain = ig.GPDensity(**options).fit(rows, sample_weight=weights)
    moved = ig.GPDensity(order=2, bounds=[[5.0, 8.0], [5.0, 8.0]]).fit(
        3.0 * rows + 5.0, sample_weight=weights
    )
    at = rows[:4]
    for one, two in zip(plain.pdf(at, return_std=True), moved.pdf(3.0 * at + 5.0, return_std=True)):
        assert_allclose(two, one / 9.0, rtol=1e-6)
    assert np.all(plain.pdf(at, return_std=True)[1] > 0.0)
    assert moved.log_evidence_ == pytest.approx(plain.log_evidence_ - weights.sum() * np.log(9.0), rel=1e-9)
    repeated = ig.GPDensity(order=2, bounds=[[5.0, 8.0], [5.0, 8.0]]).fit(
        np.repeat(3.0 * rows + 5.0, weights, axis=0)
    )
    assert repeated.log_evidence_ == pytest.approx(moved.log_evidence_, rel=1e-9)
    one = ig.GPDensity(order=2, bounds=[[5.0, 8.0], [5.0, 8.0]]).fit(3.0 * rows + 5.0)
    assert not np.allclose(one.pdf(3.0 * at + 5.0), moved.pdf(3.0 * at + 5.0), rtol=1e-3)


def test_a_box_without_volume_is_refused() -> None:
    """Its density would be infinite, and next to it 0/0."""
    X = 1e-200 * np.random.default_rng(0).uniform(size=(30, 2))
    with pytest.raises(ig.errors.ParameterError, match="too small or large a volume; rescale X"):
        ig.GPDensity().fit(X)


@pytest.mark.parametrize("seed", [1001000, 2001000])
def test_a_first_sweep_that_leaves_next_to_no_process_is_made_again(seed: int) -> None:
    """Of these rows it took the mass from 9 to 4e29, and the next one had no finite site."""
    rng = np.random.default_rng(seed)
    part = rng.choice(2, 610, p=(0.4, 0.6))
    x = rng.normal(np.array([0.3, 0.7])[part], np.array([0.08, 0.06])[part])[:300]
    model, grid = ig.GPDensity().fit(x[:, None]), np.linspace(0.0, 1.0, 501)
    truth = 0.4 * norm.pdf(grid, 0.3, 0.08) + 0.6 * norm.pdf(grid, 0.7, 0.06)
    assert np.sqrt(np.mean((model.pdf(grid[:, None]) - truth) ** 2)) < 0.3
