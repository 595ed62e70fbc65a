"""The report after a fit: its bounds against dense formulas, its figures against their definitions, its
advice.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import inducing as ig
from inducing.inference.left_out import LeftOut
from inducing.learning.diagnosis import Diagnosis, outliers_of, piled_targets, relevance

RNG = np.random.default_rng(0)
n = 40
X = RNG.uniform(-2, 2, (n, 2))
Y = np.column_stack([np.sin(2 * X[:, 0]) + 0.2 * X[:, 1], np.cos(X[:, 1])]) + 0.1 * RNG.standard_normal(
    (n, 2)
)
Z = RNG.uniform(-2, 2, (6, 2))
RBF = ig.kernels.RBF([0.8, 1.3], 1.4)
POINTS = ig.bases.Points(Z)
WIDE = ig.bases.Multiscale(Z, np.full((6, 2), 1.5))
PER_ROW = RNG.uniform(0.02, 0.3, n)


def rbf(A, B):
    return 1.4 * np.exp(-0.5 * (((A[:, None] - B[None]) / np.array([0.8, 1.3])) ** 2).sum(-1))


def held(kernel, basis, row, noise, y, **options):
    """A fit whose parameters are those given."""
    return ig.fit(kernel, basis, row, noise, X, y, max_iterations=0, jitter=0.0, **options)


def log_normal(y, C):
    return sum(multivariate_normal.logpdf(column, cov=C) for column in np.atleast_2d(y.T))


def dense(basis, noise, y):
    """Lower and upper bound, and the exact log evidence, by n-by-n matrices."""
    K, Kfu, Kuu = rbf(X, X), basis.cross(RBF, X), basis.gram(RBF)
    Q, S = Kfu @ np.linalg.solve(Kuu, Kfu.T), np.diag(np.broadcast_to(noise, n))
    p, t = np.atleast_2d(y.T).shape[0], np.trace(K - Q)
    lower = log_normal(y, Q + S) - 0.5 * p * np.trace(np.linalg.solve(S, K - Q))
    squares = np.sum(y * np.linalg.solve(Q + S + t * np.eye(n), y))
    upper = -0.5 * (p * (n * np.log(2 * np.pi) + np.linalg.slogdet(Q + S)[1]) + squares)
    return lower, upper, log_normal(y, K + S), Q, S


@pytest.mark.parametrize("basis", [POINTS, WIDE], ids=["points", "multiscale"])
@pytest.mark.parametrize("noise", [0.05, PER_ROW], ids=["one noise", "by row"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_bounds_are_the_dense_ones_and_hold_the_exact_evidence(basis, noise, outputs):
    y = Y[:, 0] if outputs == 1 else Y
    lower, upper, exact, Q, S = dense(basis, noise, y)
    found = ig.diagnose(held(RBF, basis, "fitc", noise, y), X, y)
    assert found.lower == pytest.approx(lower, rel=1e-9)
    assert found.upper == pytest.approx(upper, rel=1e-9)
    assert found.lower < exact < found.upper
    assert found.residual == pytest.approx(1 - np.trace(Q) / (1.4 * n), rel=1e-8)
    assert found.residual_to_noise == pytest.approx((1.4 * n - np.trace(Q)) / np.trace(S), rel=1e-8)
    assert found.effective == pytest.approx(np.trace(Q @ np.linalg.inv(Q + S)), rel=1e-8)
    assert found.evidence == pytest.approx(ig.log_evidence(RBF, basis, "fitc", noise, X, y, jitter=0.0))
    assert found.gap == pytest.approx((upper - lower) / n)


def test_bounds_hold_on_random_problems():
    rng = np.random.default_rng(1)
    for _ in range(30):
        kernel = ig.kernels.RBF(rng.uniform(0.2, 3.0, 2), rng.uniform(0.1, 5.0))
        noise, m = 10.0 ** rng.uniform(-4, 1), int(rng.integers(1, 30))
        y = rng.standard_normal(n) * 10.0 ** rng.uniform(-2, 2)
        found = ig.diagnose(held(kernel, ig.bases.Points(rng.normal(size=(m, 2))), "vfe", noise, y), X, y)
        exact = ig.log_evidence(kernel, None, "exact", noise, X, y)
        assert (
            found.lower
            <= exact * (1 + 1e-10 * np.sign(exact))
            <= found.upper * (1 + 2e-10 * np.sign(found.upper))
        )
        assert found.excess <= 0  # VFE's evidence is the lower bound


def test_a_weight_is_the_row_so_often():
    rng = np.random.default_rng(100)
    y, weights = Y[:, 0], rng.integers(1, 4, n)
    often = np.repeat(np.arange(n), weights)
    fit = held(RBF, POINTS, "vfe", 0.05, y)
    one, other = ig.diagnose(fit, X, y, weights=weights), ig.diagnose(fit, X[often], y[often])
    exact = ig.log_evidence(RBF, None, "exact", 0.05, X[often], y[often])
    assert one.lower == pytest.approx(other.lower, rel=1e-9)
    # R of a row counts once in the one and once for each copy in the other; either may be the tighter bound
    assert one.lower < exact < min(one.upper, other.upper)
    copies = -0.5 * np.sum((weights - 1) * np.log(2 * np.pi * 0.05) + np.log(weights))
    for basis in (
        POINTS,
        ig.bases.Points(X[::2]),
    ):  # a row w times is one of noise σ²/w, but for its normalisation
        lower, upper, *_ = dense(basis, 0.05 / weights, y)
        found = ig.diagnose(held(RBF, basis, "vfe", 0.05, y), X, y, weights=weights)
        assert found.lower == pytest.approx(lower + copies, rel=1e-8)
        assert found.upper == pytest.approx(upper + copies, rel=1e-8)


def test_bounds_meet_where_the_basis_holds_every_row():
    found = ig.diagnose(held(RBF, ig.bases.Points(X), "fitc", 0.05, Y[:, 0]), X, Y[:, 0])
    exact = log_normal(Y[:, 0], rbf(X, X) + 0.05 * np.eye(n))
    assert found.lower == pytest.approx(exact, abs=1e-6) and found.upper == pytest.approx(exact, abs=1e-6)
    assert found.residual == pytest.approx(0.0, abs=1e-9) and found.jitter == 0.0


def test_an_exact_gp_is_its_own_bounds():
    fit = ig.fit(RBF, None, "exact", 0.05, X, Y[:, 0], max_iterations=0)
    found = ig.diagnose(fit, X, Y[:, 0])
    assert (
        found.lower
        == found.upper
        == found.evidence
        == pytest.approx(log_normal(Y[:, 0], rbf(X, X) + 0.05 * np.eye(n)))
    )
    assert found.effective is None


@pytest.mark.parametrize("approximation", ["exact", "cg", "sod"])
def test_an_exact_gps_report_leaves_out_what_is_about_a_basis(approximation):
    model = ig.SparseGPRegressor(approximation=approximation, n_inducing=20, max_iter=5, random_state=0).fit(
        X, Y[:, 0]
    )
    rows = 20 if approximation == "sod" else n
    lines = [line for line in str(model.report_).splitlines() if not line.startswith("- ")]
    surprising = [line for line in lines if line.startswith("surprising")]
    shown = model.report_.surprises[: len(surprising)]
    assert all(f"row {row} " in line for line, (row, *_) in zip(surprising, shown, strict=True))
    assert len(surprising) == (0 if approximation == "sod" else 5)  # of a subset no row is left out
    lines = [line for line in lines if line not in surprising]
    figures = [re.split("  +", line) for line in lines]
    assert figures[:2] == [
        ["different rows", f"{rows}"],
        ["exact log evidence", f"{model.log_evidence_:.6g}"],
    ]
    assert len(figures) == 3 and figures[2][0] == "at a bound"


def test_the_size_suggested_is_the_least_that_leaves_a_tenth_of_the_noise():
    rng = np.random.default_rng(101)
    kernel, y = ig.kernels.Linear([1.0, 0.5]), X[:, 0] + 0.1 * rng.standard_normal(n)
    basis = ig.bases.Points(Z)
    found = ig.diagnose(ig.fit(kernel, basis, "vfe", 0.01, X, y, max_iterations=0, jitter=1e-6), X, y)
    assert found.suggested == 2  # a linear function of two inputs
    assert any("2 basis functions would do as well" in sentence for sentence in found.advice)
    found = ig.diagnose(held(RBF, POINTS, "vfe", 1e-6, Y[:, 0]), X, Y[:, 0])
    assert found.suggested is None and found.tried == 12  # the noise asks for more than twice as many
    assert any("more than 12" in sentence for sentence in found.advice) and "more than 12" in str(found)
    greedy = ig.selection.greedy_variance(X, 40, 0, kernel=RBF, threshold=0.1 * 0.05 / 1.4)
    assert ig.diagnose(held(RBF, ig.bases.Points(X[:25]), "vfe", 0.05, Y[:, 0]), X, Y[:, 0]).suggested == len(
        greedy
    )


def test_what_ended_at_a_bound_is_named():
    rng = np.random.default_rng(102)
    smooth = X[:, 0] ** 2
    fit = ig.fit(RBF, ig.bases.Points(X[::2]), "fitc", 0.1, X, smooth, noise_floor=1e-3, max_iterations=100)
    assert "noise at its least" in fit.at_bounds
    assert (
        "kernel.lengthscale at its greatest in 1 of 2 entries" in fit.at_bounds
    )  # the second input does nothing
    assert fit.noise == pytest.approx(1e-3 * smooth.var())
    found = ig.diagnose(fit, X, smooth)
    assert "noise at its least" in str(found) and any("floor" in sentence for sentence in found.advice)
    noise = rng.standard_normal(n)
    free = ig.fit(ig.kernels.RBF(1.0), POINTS, "vfe", 0.1, X, noise, fixed=("basis",), max_iterations=200)
    assert all(not name.startswith("noise") for name in free.at_bounds)


def test_advice():
    well = Diagnosis(
        rows=100,
        functions=10,
        evidence=-50.0,
        lower=-51.0,
        upper=-49.0,
        residual=1e-3,
        residual_to_noise=0.05,
        effective=8.0,
        jitter=1e-8,
        at_bounds=(),
        suggested=9,
        tried=20,
        converged=True,
    )
    assert well.advice == () and well.gap == pytest.approx(0.02) and well.excess == pytest.approx(-0.01)
    for change, word in (
        ({"evidence": -40.0}, "0.09 nats per row above"),
        ({"residual_to_noise": 0.5, "suggested": 15}, "about 15"),
        ({"jitter": 1e-5}, "Jitter grew to 1e-05"),
        ({"at_bounds": ("noise at its greatest",)}, "explain nothing"),
        ({"converged": False}, "more iterations"),
        ({"outliers": (4,)}, "the others say: row 4. With Gaussian noise"),
        ({"outliers": (4, 9, 2)}, "rows 4, 9, 2. With Gaussian noise they spoil predictions"),
        ({"outliers": (4, 9, 2)}, "likelihood='studentt', or noise='learned' where the noise depends on"),
        ({"piled": (("least", 0.0, 0.25),)}, "25 % of the targets are 0, the least of all"),
    ):
        (sentence,) = replace(well, **change).advice
        assert word in sentence and sentence in str(replace(well, **change))


def test_the_estimators_report_is_in_the_units_of_y():
    y = 1000.0 * Y[:, 0] + 5.0
    model = ig.SparseGPRegressor(approximation="exact", max_iter=20).fit(X, y)
    assert model.report_.lower == model.report_.upper == pytest.approx(model.log_evidence_)
    model = ig.SparseGPRegressor(approximation="vfe", n_inducing=10, max_iter=20, random_state=0).fit(X, y)
    assert model.report_.evidence == pytest.approx(model.log_evidence_)
    assert model.report_.lower == pytest.approx(model.log_evidence_, rel=1e-9)
    scaled = (X - model.x_mean_) / model.x_scale_
    exact = ig.log_evidence(
        model.posterior_.kernel, None, "exact", model.fit_result_.noise, scaled, (y - y.mean()) / y.std()
    )
    assert model.report_.lower < exact - n * np.log(y.std()) < model.report_.upper


def test_a_fit_along_neighbours_has_the_bounds_of_its_basis():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(60)
    start = (ig.kernels.RBF([1.0, 1.0]), ig.bases.Points(X[:6]), "neighbours", 0.05, X, y)
    fit = ig.fit(*start, neighbours=5, max_iterations=2, progress=False)
    report = ig.diagnose(fit, X, y)
    vfe = ig.log_evidence(fit.kernel, fit.basis, "vfe", fit.noise, X, y)
    assert report.lower == pytest.approx(vfe, rel=1e-10) and report.lower < report.upper
    assert report.evidence == pytest.approx(fit.value, rel=1e-9) and report.effective < 6


def test_another_likelihood_is_refused():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 1))
    labels = np.where(X[:, 0] > 0, 1.0, -1.0)
    start = (ig.kernels.RBF(1.0), ig.bases.Points(X[:4]), "fitc", ig.likelihoods.Probit(), X, labels)
    fit = ig.fit(*start, max_iterations=1, progress=False)
    with pytest.raises(ig.errors.ParameterError, match="a diagnosis needs Gaussian noise, not Probit"):
        ig.diagnose(fit, X, labels)


def test_targets_at_a_limit_are_named(tmp_path):
    y = np.round(100.0 * Y[:, 0], 1)
    cut = np.maximum(y, np.quantile(y, 0.2))
    model = ig.SparseGPRegressor(approximation="exact", max_iter=5).fit(X, cut)
    assert model.report_.piled == (("least", cut.min(), np.mean(cut == cut.min())),)
    assert f"{cut.min():.6g}, the least of all" in str(model.report_)
    model.save(tmp_path / "model")
    assert ig.load(tmp_path / "model").report_ == model.report_
    for others in (y, np.sign(y - np.median(y)), np.full(n, 3.0)):  # no limit, two classes, a constant
        assert piled_targets(others) == ()
    assert [end for end, *_ in piled_targets(np.clip(y, *np.quantile(y, [0.1, 0.9])))] == [
        "least",
        "greatest",
    ]


@pytest.mark.parametrize("options", [{}, {"approximation": "fitc", "n_inducing": 30}, {"kernel": "rbf"}])
def test_outliers_are_named_with_a_likelihood_for_them(options, tmp_path):
    """The default learns noise that is wide about them, so that they are three deviations off."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (300, 2))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=300)
    wrong = y.copy()
    wrong[[10, 120, 250]] = 50.0, -60.0, 40.0
    weights = np.where(np.arange(300) == 5, 0.0, 1.0)  # row numbers are the user's
    model = ig.SparseGPRegressor(random_state=0, **options).fit(X, wrong, weights)
    named = model.report_.outliers
    assert named == (120, 10, 250) or (not options and 120 in named and set(named) <= {120, 10, 250})
    assert f"rows {', '.join(map(str, named))}. With Gaussian noise" in str(model.report_)
    assert "check them, or fit likelihood='studentt'." in str(model.report_)
    model.save(tmp_path / "model")
    assert ig.load(tmp_path / "model").report_ == model.report_
    if options:
        assert ig.SparseGPRegressor(random_state=0, **options).fit(X, y).report_.outliers == ()


def test_errors_as_large_as_their_deviations_are_no_outliers():
    rng = np.random.default_rng(1)
    std = np.exp(rng.normal(size=600))
    error = std * rng.normal(size=600)
    assert np.max(np.abs(error)) > 15 * np.median(np.abs(error))
    left = LeftOut(0.0 * error, std**2, error, error)
    assert len(outliers_of(left)) == 0
    far = np.where(np.arange(600) == 7, 100.0, error)
    assert outliers_of(replace(left, error=far)).tolist() == [7]
    assert len(outliers_of(replace(left, error=0.0 * error))) == 0
    few = LeftOut(np.zeros(3), np.ones(3), np.zeros(3), np.array([0.1, -0.1, 90.0]))
    assert outliers_of(few).tolist() == [2]
    alone = LeftOut(np.zeros(1), np.ones(1), np.zeros(1), np.ones(1))
    assert len(outliers_of(alone)) == 0


def test_few_rows_for_each_input_promise_too_much():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(60, 7)), np.ones(60)])  # a constant is no input that varies
    y = X[:, 0] + 0.3 * rng.normal(size=60)
    few = ig.SparseGPRegressor("rbf", "exact", max_iter=20, random_state=0).fit(X, y).report_
    assert few.inputs == 7
    assert replace(few, inside=0.95).verdict.endswith(
        "of 95 %, but new rows less often: 60 rows of 7 inputs promise too much."
    )
    assert replace(few, inside=0.95, inputs=6).verdict.endswith("of 95 %, as they should.")
    assert replace(few, inside=0.5).verdict.endswith("too few: it is less sure than it says.")


def _dense_of(model, inputs, y, noise):
    """Lower bound, exact log evidence and upper bound at a model's parameters, with this noise of each row,
    in the units of y; inputs are those of the kernel.
    """
    post = model.posterior_
    K, Kfu, Kuu = (
        post.kernel(inputs, inputs),
        post.basis.cross(post.kernel, inputs),
        post.basis.gram(post.kernel),
    )
    Kuu = Kuu + post.jitter * np.mean(np.diag(Kuu)) * np.eye(len(Kuu))
    Q, S, units = Kfu @ np.linalg.solve(Kuu, Kfu.T), np.diag(noise), -np.sum(np.log(model.y_scale_ + 0 * y))
    t = np.trace(K - Q)
    lower = log_normal(y, Q + S) - 0.5 * np.trace(np.linalg.solve(S, K - Q))
    upper = -0.5 * (len(y) * np.log(2 * np.pi) + np.linalg.slogdet(Q + S)[1])
    upper -= 0.5 * y @ np.linalg.solve(Q + S + t * np.eye(len(y)), y)
    return lower + units, log_normal(y, K + S) + units, upper + units


def test_a_table_with_gaps_has_a_diagnosis():
    gappy, y = X.copy(), 30.0 * Y[:, 0] + 5.0
    gappy[::4, 1] = np.nan
    model = ig.SparseGPRegressor(missing="use", n_inducing=8, max_iter=5, random_state=0).fit(gappy, y)
    inputs = (model._rows[0] - model.x_mean_) / model.x_scale_  # means, then variances
    kernel = model.posterior_.kernel
    v, length = inputs[:, 2:], np.asarray(kernel.lengthscale)
    twice = np.prod(
        np.sqrt(length**2 / (length**2 + 2 * v)), axis=1
    )  # the double integral of k, over k(x, x)
    scatter = kernel.variance * (1 - twice)
    assert np.sum(scatter > 0) == 10
    scaled = (y - model.y_mean_) / model.y_scale_
    bounds = _dense_of(model, inputs, scaled, model.noise_ / model.y_scale_**2 + scatter)
    assert (model.report_.lower, model.report_.upper) == pytest.approx(bounds[::2], rel=1e-6)
    assert bounds[0] < bounds[1] < bounds[2]
    assert model.report_.evidence == pytest.approx(model.log_evidence_)


def test_rows_left_out_in_turn_say_what_a_model_is_good_for():
    y = 30.0 * Y[:, 0] + 5.0
    model = ig.SparseGPRegressor(approximation="exact", kernel="rbf", max_iter=10, random_state=0).fit(X, y)
    post, inputs = model.posterior_, (X - model.x_mean_) / model.x_scale_
    K = (post.kernel(inputs, inputs) + model.noise_ / model.y_scale_**2 * np.eye(n)) * model.y_scale_**2
    errors, inside = [], []
    for i in range(n):
        others = np.arange(n) != i
        weights = np.linalg.solve(K[np.ix_(others, others)], K[others, i])
        errors.append(y[i] - model.y_mean_ - weights @ (y[others] - model.y_mean_))
        inside.append(abs(errors[-1]) <= 1.959964 * np.sqrt(K[i, i] - weights @ K[others, i]))
    share = 1 - np.mean(np.square(errors)) / np.var(y)
    assert model.report_.explained == pytest.approx((share,), rel=1e-6)
    assert model.report_.inside == np.mean(inside)
    told = str(model.report_).splitlines()[0]
    assert f"explains {100 * share:.0f} % of the variance, and {100 * np.mean(inside):.0f} % of the" in told
    assert replace(model.report_, inside=0.6).verdict.endswith("too few: it is less sure than it says.")
    assert replace(model.report_, inside=None).verdict == ""


def test_outputs_that_inform_each_other_have_a_diagnosis(tmp_path):
    few = Y.copy()
    few[::3, 1] = np.nan
    model = ig.SparseGPRegressor(outputs="coregionalised", n_inducing=10, max_iter=5, random_state=0)
    model.fit(X, few).save(tmp_path / "m.gp")
    seen = ~np.isnan(few)
    places = np.column_stack([np.repeat(X, 2, axis=0), np.tile([0.0, 1.0], n)])[seen.ravel()]
    level = places[:, 2].astype(int)
    inputs = (places - model.x_mean_) / model.x_scale_
    y = (few.ravel()[seen.ravel()] - model.y_mean_[level]) / model.y_scale_[level]
    noise = (model.noise_ / model.y_scale_**2)[level]
    post, units = model.posterior_, -np.sum(np.log(model.y_scale_[level]))
    exact = log_normal(y, post.kernel(inputs, inputs) + np.diag(noise)) + units
    vfe = ig.log_evidence(post.kernel, post.basis, "vfe", noise, inputs, y, jitter=post.jitter) + units
    assert model.report_.lower == pytest.approx(vfe, rel=1e-9)
    assert model.report_.lower < exact < model.report_.upper
    left, shares = model.loo_, []
    for q in range(2):
        rows = seen[:, q]
        shares.append(1 - np.mean(left.error[rows, q] ** 2) / np.var(few[rows, q]))
    assert model.report_.explained == pytest.approx(shares) and model.report_.surprises == ()
    assert ig.load(tmp_path / "m.gp").report_ == model.report_


def test_learned_noise_has_a_diagnosis_with_the_noise_that_f_was_learned_with():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (120, 1))
    y = 10 + 5 * np.sin(2 * x[:, 0]) + np.where(x[:, 0] > 0, 4.0, 0.1) * rng.standard_normal(120)
    model = ig.SparseGPRegressor(noise="learned", n_inducing=10, max_iter=20, random_state=0).fit(x, y)
    inputs, scaled = (x - model.x_mean_) / model.x_scale_, (y - model.y_mean_) / model.y_scale_
    before, temperature = model.noise_of_f_
    assert temperature > 0  # so that the noise of f is one for each row
    mean, variance = before.predict(inputs)
    constant = np.log(model.fit_result_.noise)
    noise = np.exp((1 - temperature) * constant + temperature * (mean + 0.5 * variance))
    lower, exact, upper = _dense_of(model, inputs, scaled, noise)
    assert (model.report_.lower, model.report_.upper) == pytest.approx((lower, upper), rel=1e-6)
    assert lower < exact < upper and model.log_evidence_ == pytest.approx(lower, rel=1e-6)  # VFE
    # each row by the others, with the noise of g for a new observation there
    post, i = model.posterior_, 7
    others = np.arange(120) != i
    refit = ig.condition(
        post.kernel, post.basis, "vfe", noise[others], inputs[others], scaled[others], jitter=post.jitter
    )
    m, v = refit.predict(inputs[i : i + 1])
    of_g = model.noise_posterior_.predict(inputs[i : i + 1])
    left = model.loo_
    assert left.mean[i] == pytest.approx(m[0] * model.y_scale_ + model.y_mean_, rel=1e-6)
    assert left.variance[i] == pytest.approx(
        (v[0] + np.exp(of_g[0][0] + 0.5 * of_g[1][0])) * model.y_scale_**2, rel=1e-5
    )


def test_relevance_looks_inside_sums_features_and_projections():
    k, basis = ig.kernels, ig.bases.Points(np.random.default_rng(0).standard_normal((5, 3)))
    lengths = np.array([0.5, 2.0, 4.0])
    assert relevance(k.RBF(lengths), basis) == pytest.approx(1 / lengths)
    assert relevance(k.RBF(0.5), basis) == pytest.approx([2.0, 2.0, 2.0])
    assert relevance(k.RBF(lengths) + k.Matern32(1.0, columns=(2,)), basis) == pytest.approx([2.0, 0.5, 1.0])
    assert relevance(k.Linear(), basis) == pytest.approx([0.0, 0.0, 0.0])
    inner = k.Matern32(np.array([4.0, 4.0, 4.0, 0.25])) + k.RBF(np.array([8.0, 8.0, 8.0, 8.0]))
    assert relevance(k.Warped(inner, [(1, 0.0, 1.0)]), basis) == pytest.approx([0.25, 4.0, 0.25])
    W = np.array([[1.0, -2.0, 0.0], [0.5, 0.0, 0.0]])
    assert relevance(k.Projected(k.RBF([1.0, 0.1]), W), basis) == pytest.approx([5.0, 2.0, 0.0])
    flat = ig.bases.Points(np.array([[0.0, 1.0, 3.0], [1.0, 1.0, 4.0]]))
    assert relevance(k.RBF(lengths), flat) == pytest.approx([2.0, 0.0, 0.25])
