"""Learning: known optima, what is held, what is reported, and what survives an interruption."""

import os
import zipfile

import numpy as np
import pytest

import inducing as ig
from inducing import errors
from inducing.inference.regression import problem_of
from inducing.learning import objective as objectives
from inducing.learning.objective import Objective
from inducing.learning.settings import Alike, LogNormal, Settings

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, (50, 2))
y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * RNG.standard_normal(50)
Z = X[:8]
RBF = ig.kernels.RBF([1.0, 1.5], 0.8)
POINTS = ig.bases.Points(Z)
WIDE = ig.bases.Multiscale(Z, np.full((8, 2), 2.0))


def quick(kernel=RBF, basis=POINTS, name="fitc", noise=0.1, **options):
    return ig.fit(kernel, basis, name, noise, X, y, **({"max_iterations": 20} | options))


# Known optima.


@pytest.fixture(scope="module")
def snelson():
    if "INDUCING_DATA" not in os.environ:
        pytest.skip("INDUCING_DATA does not name a folder with snelson1d.npz")
    data = ig.datasets.load("snelson1d")
    return data.X_train, data.y_train - data.y_train.mean()


def test_exact_optimum_on_snelsons_data(snelson):
    X, y = snelson
    fit = ig.fit(ig.kernels.RBF(1.0), None, "exact", 0.1, X, y)
    assert fit.converged and -fit.value == pytest.approx(55.5647, abs=1e-3)
    fit = ig.fit(ig.kernels.RBF(1.0), None, "exact", 0.1, X, y / y.std())
    assert fit.converged and -fit.value == pytest.approx(89.8103, abs=1e-3)


def test_the_estimator_finds_the_same_optimum(snelson):
    X, y = snelson
    model = ig.SparseGPRegressor(approximation="exact").fit(X, y)
    assert -model.log_evidence_ == pytest.approx(55.5647, abs=1e-3)
    assert -model.fit_result_.value == pytest.approx(89.8103, abs=1e-3)


def test_vfe_comes_close_to_the_exact_optimum_from_below(snelson):
    X, y = snelson
    basis = ig.bases.Points(np.linspace(X.min(), X.max(), 15)[:, None])
    fit = ig.fit(ig.kernels.RBF(1.0), basis, "vfe", 0.1, X, y)
    assert 55.5647 - 1e-3 < -fit.value < 55.5647 + 0.1


def test_learning_improves_the_evidence_and_says_what_it_reached():
    for basis in (POINTS, WIDE):
        for name in ("fitc", "vfe", "dtc", "pep"):
            start = ig.log_evidence(RBF, basis, name, 0.1, X, y)
            fit = quick(basis=basis, name=name)
            assert fit.value > start + 1
            assert fit.value == pytest.approx(
                ig.log_evidence(fit.kernel, fit.basis, name, fit.noise, X, y), rel=1e-9
            )
            assert fit.posterior.log_evidence == pytest.approx(fit.value, rel=1e-9)
            assert list(fit.history) == sorted(fit.history) and fit.history[-1] == fit.value
            assert fit.n_iterations == len(fit.history) == 20 and not fit.converged


def test_convergence_is_said_only_where_the_gradient_is_flat():
    fit = ig.fit(RBF, None, "exact", 0.1, X, y)
    assert fit.converged and fit.n_iterations < 200
    _, gradient = ig.log_evidence_and_gradient(fit.kernel, None, "exact", fit.noise, X, y)
    assert abs(gradient["noise"] * fit.noise) < 1e-2 * len(y)
    for few in (1, 3):
        fit = ig.fit(RBF, None, "exact", 0.1, X, y, max_iterations=few)
        assert not fit.converged and fit.n_iterations == few and "LIMIT" in fit.message
    fit = quick(max_iterations=0)
    assert not fit.converged and fit.n_iterations == 0
    assert fit.value == pytest.approx(ig.log_evidence(RBF, POINTS, "fitc", 0.1, X, y))


def test_composite_kernels_and_means_are_learnt_by_path():
    kernel = ig.kernels.RBF(1.0, 0.5, columns=(0,)) + ig.kernels.Linear([0.1, 0.1]) * ig.kernels.Constant(0.5)
    fit = quick(kernel=kernel, mean=ig.means.Linear([0.0, 0.0]))
    assert fit.value > ig.log_evidence(kernel, POINTS, "fitc", 0.1, X, y) + 1
    before, after = kernel.parameters, fit.kernel.parameters
    assert set(before) == {"0.lengthscale", "0.variance", "1.0.variance", "1.1.variance"}
    assert all(np.any(after[name] != before[name]) for name in before)
    assert np.all(fit.mean.weights != 0) and fit.mean.bias != 0


# What is held.


@pytest.mark.parametrize("basis", [POINTS, WIDE], ids=["points", "multiscale"])
@pytest.mark.parametrize("optimize", ["all", "hyperparameters", "basis"])
def test_each_mode_moves_what_it_says(optimize, basis):
    fit = quick(basis=basis, optimize=optimize)
    hyper, places = optimize != "basis", optimize != "hyperparameters"
    assert (fit.noise != 0.1) == hyper
    assert np.all((fit.kernel.lengthscale != RBF.lengthscale) == hyper)
    for name in ("Z", "centers"):
        if name in basis.parameters:
            np.testing.assert_array_equal(np.any(fit.basis.parameters[name] != Z), places)


def test_hyperparameters_alone_hold_the_ratio_of_widths_to_lengthscales():
    fit = quick(basis=WIDE, optimize="hyperparameters")
    assert not np.allclose(fit.kernel.lengthscale, RBF.lengthscale, rtol=0.1)
    np.testing.assert_allclose(
        fit.basis.widths / fit.kernel.lengthscale, WIDE.widths / RBF.lengthscale, rtol=1e-12
    )
    np.testing.assert_array_equal(fit.basis.centers, WIDE.centers)


def test_widths_stay_legal_while_lengthscales_grow():
    fit = quick(basis=ig.bases.Multiscale(Z, np.full((8, 2), 1.1)), max_iterations=60)
    assert np.all(fit.basis.widths > fit.kernel.lengthscale / np.sqrt(2))


@pytest.mark.parametrize(
    "held", [("kernel.variance",), ("kernel",), ("noise",), ("basis",), ("basis.Z", "noise")]
)
def test_fixed_parameters_stay(held):
    fit = quick(fixed=held)
    before = {"kernel.lengthscale": RBF.lengthscale, "kernel.variance": 0.8, "basis.Z": Z, "noise": 0.1}
    after = {
        "kernel.lengthscale": fit.kernel.lengthscale,
        "kernel.variance": fit.kernel.variance,
        "basis.Z": fit.basis.Z,
        "noise": fit.noise,
    }
    for name in before:
        stays = any(name == h or name.startswith(h + ".") for h in held)
        assert np.array_equal(before[name], after[name]) == stays, name


@pytest.mark.parametrize("basis", [POINTS, WIDE], ids=["points", "multiscale"])
def test_only_movable_functions_move(basis):
    movable = np.arange(8) % 3 == 0
    fit = quick(basis=basis, movable=movable)
    for name, value in fit.basis.parameters.items():
        before = basis.parameters[name]
        if name == "widths":  # those that may not move by themselves keep their ratio to the lengthscale
            value, before = value / fit.kernel.lengthscale, before / RBF.lengthscale
        np.testing.assert_allclose(value[~movable], before[~movable], rtol=1e-12)
        assert np.all(value[movable] != before[movable])
    assert quick(basis=basis, movable=~movable).value != fit.value
    nothing = quick(basis=basis, movable=np.zeros(8, dtype=bool))
    held = quick(basis=basis, optimize="hyperparameters")
    assert nothing.value == pytest.approx(held.value, rel=1e-9)
    with pytest.raises(
        errors.ShapeError, match="movable must hold True or False for each of 8 basis functions"
    ):
        quick(basis=basis, movable=[0, 3])


def test_with_everything_fixed_there_is_nothing_to_do():
    fit = quick(fixed=("kernel", "basis", "noise"))
    assert fit.converged and fit.n_iterations == 0 and fit.message == "nothing to optimise"


def test_noise_per_row_is_held():
    rng = np.random.default_rng(100)
    noise = rng.uniform(0.05, 0.2, 50)
    fit = quick(noise=noise)
    np.testing.assert_array_equal(fit.noise, noise)
    assert np.any(fit.kernel.lengthscale != RBF.lengthscale)


def test_noise_does_not_fall_below_its_floor():
    smooth = np.sin(X[:, 0])
    for floor in (1e-6, 1e-2):
        fit = ig.fit(RBF, None, "exact", 0.1, X, smooth, noise_floor=floor)
        assert fit.noise == pytest.approx(floor * smooth.var(), rel=1e-6)
    below = ig.fit(RBF, None, "exact", 1e-4, X, smooth, noise_floor=1e-2, max_iterations=0)
    assert below.noise == pytest.approx(1e-4)  # a start may lie below


# Priors.


def test_a_strong_prior_wins_and_a_weak_one_yields():
    free = quick(optimize="hyperparameters").kernel.lengthscale
    strong = quick(
        optimize="hyperparameters", priors={"kernel.lengthscale": ig.LogNormal(0.5, 1e-3)}
    ).kernel.lengthscale
    weak = quick(
        optimize="hyperparameters", priors={"kernel.lengthscale": ig.LogNormal(0.5, 1e3)}
    ).kernel.lengthscale
    np.testing.assert_allclose(strong, 0.5, rtol=1e-2)
    np.testing.assert_allclose(weak, free, rtol=1e-3)


@pytest.mark.parametrize("prior", [LogNormal(None, 0.5), Alike(None, 0.3)])
def test_numbers_that_are_alike_have_any_mean(prior):
    value = np.random.default_rng(0).uniform(0.2, 2.0, (4, 3))
    value = value[:, 0] if type(prior) is LogNormal else value
    density, slope = prior.log_density(value)
    assert density == pytest.approx(prior.log_density(value * 3.0 if value.ndim == 1 else value + 3.0)[0])
    for place in np.ndindex(value.shape):
        up, down = value.copy(), value.copy()
        up[place] += 1e-6
        down[place] -= 1e-6
        by_differences = (prior.log_density(up)[0] - prior.log_density(down)[0]) / 2e-6
        assert slope[place] == pytest.approx(by_differences, abs=1e-6)


def test_the_value_is_the_log_evidence_and_the_log_prior():
    priors = {"noise": ig.LogNormal(0.2, 0.3), "kernel.lengthscale": ig.LogNormal(2.0, 0.5)}
    fit = quick(priors=priors)
    z = [np.log(fit.noise / 0.2) / 0.3, *(np.log(fit.kernel.lengthscale / 2.0) / 0.5)]
    assert fit.value == pytest.approx(fit.posterior.log_evidence - 0.5 * np.sum(np.square(z)), rel=1e-9)


@pytest.mark.parametrize("optimize", ["all", "hyperparameters"])
@pytest.mark.parametrize("basis", [POINTS, WIDE], ids=["points", "multiscale"])
@pytest.mark.parametrize("name", ["fitc", "vfe", "exact"])
def test_the_gradient_of_the_objective_by_finite_differences(name, basis, optimize):
    """Through every transformation: logarithms, spreads, width ratios that follow the lengthscale, priors."""
    priors = {
        "kernel.lengthscale": ig.LogNormal(2.0, 0.5),
        "kernel.variance": ig.LogNormal(1.0, 0.3),
        "noise": ig.LogNormal(0.3, 0.7),
    }
    problem = problem_of(RBF, basis, name, 0.1, X, y, mean=ig.means.Linear([0.1, 0.2], 0.3), jitter=1e-4)
    objective = Objective(problem, Settings(optimize=optimize, priors=priors, movable=np.arange(8) != 3))
    x = objective.start + 0.1 * np.random.default_rng(1).standard_normal(len(objective.start))
    value, gradient = objective.value_and_gradient(x)
    numeric = slopes(objective, x)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-7 * np.abs(gradient).max())
    raw = objective.packing.values(x)
    assert objective.log_prior(x) == pytest.approx(sum(p.log_density(raw[k])[0] for k, p in priors.items()))


def slopes(objective, x, h=1e-5):
    value = lambda x: objective.value_and_gradient(x)[0]  # noqa: E731
    return np.array([(value(x + h * e) - value(x - h * e)) / (2 * h) for e in np.eye(len(x))])


def test_shared_lengthscales_gather_the_gradients_of_all_inputs():
    problem = problem_of(ig.kernels.RBF(1.2, 0.8), WIDE, "fitc", 0.1, X, y, jitter=1e-4)
    objective = Objective(problem, Settings())
    gradient = objective.value_and_gradient(objective.start)[1]
    np.testing.assert_allclose(gradient, slopes(objective, objective.start), rtol=1e-5, atol=1e-8 * len(y))


# When it ends.


def test_held_out_rows_choose_the_point():
    rng = np.random.default_rng(3)
    X, y = (
        rng.uniform(-3, 3, (60, 2)),
        rng.standard_normal(60),
    )  # nothing to learn: all that is learned is wrong
    new, t = rng.uniform(-3, 3, (200, 2)), rng.standard_normal(200)
    start = (ig.kernels.RBF(1.0, 0.1), ig.bases.Points(X[:15]), "fitc", 1.0)
    fit = ig.fit(*start, X, y, held_out=(new, t), patience=20, max_iterations=300)
    free = ig.fit(*start, X, y, max_iterations=300)

    def density(fit):
        mean, variance = fit.posterior.predict(new)
        return -ig.metrics.nlpd(t, mean, variance + fit.noise)

    assert fit.score == pytest.approx(density(fit), rel=1e-9)
    assert fit.score > density(free) + 0.1 and free.value > fit.value + 5 and free.score is None
    assert "held-out rows gained nothing in 20 iterations" in fit.message
    with pytest.raises(errors.ParameterError, match="held-out rows have no noise of their own"):
        ig.fit(*start[:3], np.ones(60), X, y, held_out=(new, t))


def test_a_least_gain_ends_it_earlier():
    patient, hasty = (ig.fit(RBF, POINTS, "vfe", 0.1, X, y, least_gain=gain) for gain in (1e-7, 1e-2))
    assert hasty.converged and hasty.n_iterations < patient.n_iterations
    assert hasty.history[-1] - hasty.history[-11] < 50 * 1e-2  # 50 rows
    assert hasty.value <= patient.value <= hasty.value + 50 * 1e-1


# Restarts, interruption, checkpoints.


def test_restarts_are_never_worse():
    for seed in range(3):
        one = quick(max_iterations=8, rng=seed)
        several = quick(max_iterations=8, restarts=3, rng=seed)
        assert several.value >= one.value
    best = quick(kernel=ig.kernels.RBF([50.0, 50.0]), max_iterations=40, restarts=4, rng=0)
    assert (
        best.value == quick(kernel=ig.kernels.RBF([50.0, 50.0]), max_iterations=40, restarts=4, rng=0).value
    )


def stop_at(iteration, error=KeyboardInterrupt):
    def progress(i, value):
        if i == iteration:
            raise error

    return progress


def test_ctrl_c_returns_the_best_point_so_far():
    fit = quick(progress=stop_at(5))
    assert fit.n_iterations == 5 and not fit.converged and "interrupted" in fit.message
    assert fit.value == fit.history[-1] == pytest.approx(fit.posterior.log_evidence)
    assert fit.value == quick(max_iterations=5).value


def test_ctrl_c_during_a_restart_keeps_the_first_result():
    runs = []

    def progress(i, value):
        runs.append(i)
        if runs.count(1) == 2:
            raise KeyboardInterrupt

    assert quick(progress=progress, restarts=3).value >= quick().value
    assert runs.count(1) == 2


def test_ctrl_c_before_the_first_evaluation_is_passed_on(monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(objectives, "gradient_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        quick()


def test_other_errors_are_not_swallowed():
    with pytest.raises(ZeroDivisionError):
        quick(progress=stop_at(2, ZeroDivisionError))


def test_progress_counts_iterations_and_values(capfd):
    seen = []
    fit = quick(progress=lambda i, value: seen.append((i, value)))
    assert [i for i, _ in seen] == list(range(1, 21))
    assert [value for _, value in seen] == list(fit.history)
    assert capfd.readouterr().err == ""
    quick(progress=True)
    assert "iteration 20" in capfd.readouterr().err


def test_a_killed_fit_goes_on_from_its_checkpoint(tmp_path):
    file = tmp_path / "fit.npz"
    first = quick(checkpoint=file, max_iterations=6)
    second = quick(checkpoint=file, max_iterations=6)
    assert second.value > first.value > quick(max_iterations=1).value
    assert quick(checkpoint=file, max_iterations=0).value == pytest.approx(second.value, rel=1e-12)
    assert [f.name for f in tmp_path.iterdir()] == ["fit.npz"]


def test_an_interrupted_fit_keeps_its_point(tmp_path):
    fit = quick(checkpoint=tmp_path / "fit.npz", progress=stop_at(4))
    assert quick(checkpoint=tmp_path / "fit.npz", max_iterations=0).value == pytest.approx(
        fit.value, rel=1e-12
    )


def test_worse_restarts_do_not_overwrite_a_better_point(tmp_path):
    fit = quick(checkpoint=tmp_path / "fit.npz", restarts=4, rng=0)
    again = quick(checkpoint=tmp_path / "fit.npz", max_iterations=0)
    assert again.value == pytest.approx(fit.value, rel=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        dict(name="vfe"),
        dict(kernel=ig.kernels.Matern32([1.0, 1.5], 0.8)),
        dict(basis=ig.bases.Points(X[:9])),
        dict(fixed=("noise",)),
        dict(optimize="hyperparameters"),
        dict(weights=np.full(50, 2.0)),
        dict(kernel=ig.kernels.RBF([1.0, 1.5], 0.8, columns=(1, 0))),
    ],
)
def test_a_checkpoint_of_another_problem_is_refused(change, tmp_path):
    quick(checkpoint=tmp_path / "fit.npz", max_iterations=1)
    with pytest.raises(errors.ModelFileError, match="another problem"):
        quick(**change, checkpoint=tmp_path / "fit.npz")


def test_corrupt_checkpoints_are_refused(tmp_path):
    file = tmp_path / "fit.npz"
    quick(checkpoint=file, max_iterations=1)
    raw = file.read_bytes()
    altered = bytearray(raw)
    altered[200] ^= 4
    contents = {
        "empty": b"",
        "text": b"no checkpoint",
        "half": raw[: len(raw) // 2],
        "flipped": bytes(altered),
    }
    for content in contents.values():
        file.write_bytes(content)
        with pytest.raises(errors.ModelFileError, match="cannot be read"):
            quick(checkpoint=file)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("other.npy", b"")
    with pytest.raises(errors.ModelFileError, match="cannot be read"):
        quick(checkpoint=file)


# Bad starts and bad input.


def test_duplicate_basis_points_get_jitter_once():
    twice = ig.bases.Points(np.repeat(Z, 2, axis=0))
    with pytest.warns(errors.JitterWarning) as caught:
        fit = quick(basis=twice, jitter=0.0)
    assert len(caught) == 1 and fit.posterior.jitter > 0
    assert quick(basis=twice).posterior.jitter == 1e-8  # the usual jitter is enough, and silent


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (errors.UnknownNameError, "'everything'", dict(optimize="everything")),
        (errors.UnknownNameError, "kernel.period", dict(fixed=("kernel.period",))),
        (errors.UnknownNameError, "basis.Z", dict(priors={"basis.Z": ig.LogNormal(1.0, 1.0)})),
        (errors.UnknownNameError, "no approximation", dict(name="best")),
        (errors.NoiseError, "-0.1", dict(noise=-0.1)),
        (errors.ParameterError, "needs a basis", dict(basis=None)),
        (errors.WidthError, "width", dict(basis=ig.bases.Multiscale(Z, np.full((8, 2), 0.5)))),
        (errors.ParameterError, "RBF", dict(basis=WIDE, kernel=ig.kernels.Matern32(1.0))),
    ],
)
def test_bad_input_has_a_named_error(error, words, options):
    with pytest.raises(error, match=words):
        quick(**options)


def test_a_prior_may_be_wider_above_its_median():
    prior, value = LogNormal(2.0, 0.5, sigma_above=4.0), np.array([0.7, 1.9, 2.1, 300.0])
    wide, narrow = LogNormal(2.0, 4.0), LogNormal(2.0, 0.5)
    density, slope = prior.log_density(value)
    below, above = narrow.log_density(value[:2]), wide.log_density(value[2:])
    assert density == pytest.approx(below[0] + above[0], rel=1e-12)
    assert slope == pytest.approx(np.concatenate([below[1], above[1]]), rel=1e-12)
    with pytest.raises(errors.ParameterError, match="sigma_above needs a median"):
        LogNormal(None, 0.5, sigma_above=4.0)
    for wrong in (0.0, np.nan):
        with pytest.raises(errors.ParameterError, match="positive"):
            LogNormal(1.0, 0.5, sigma_above=wrong)


@pytest.mark.parametrize(("median", "sigma"), [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (np.nan, 1.0)])
def test_priors_need_positive_numbers(median, sigma):
    with pytest.raises(errors.ParameterError, match="positive"):
        ig.LogNormal(median, sigma)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"restarts": "x"}, "restarts must be a whole number of at least 0, but is 'x'"),
        ({"restarts": -1}, "restarts must be a whole number of at least 0, but is -1"),
        ({"priors": [1]}, "priors must be a dictionary such as"),
        ({"priors": {"kernel.variance": 3.0}}, "priors must be a dictionary such as"),
        ({"checkpoint": 5}, "checkpoint must be the name of a file, as text or a Path, not 5"),
        ({"projection": "x"}, "projection must be a whole number of at least 1, but is 'x'"),
    ],
)
def test_settings_of_another_kind_are_named(options, message):
    rows = np.linspace(-2.0, 2.0, 30)[:, None]
    with pytest.raises(ig.errors.ParameterError, match=message):
        ig.SparseGPRegressor(n_inducing=5, max_iter=2, **options).fit(rows, rows[:, 0])
    if "projection" not in options:
        start = (ig.kernels.RBF(1.0), ig.bases.Points(rows[:4]), "fitc", 0.1, rows, rows[:, 0])
        with pytest.raises(ig.errors.ParameterError, match=message):
            ig.fit(*start, max_iterations=2, **options)
