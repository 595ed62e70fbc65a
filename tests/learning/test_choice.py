"""The choice of kernel and row that a user leaves open."""

import pickle
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import inducing as ig
from inducing.errors import FactorisationError, ModelFileError, ParameterError, UnknownNameError
from inducing.learning import candidates, choice
from inducing.learning.candidates import (
    COMPARED_ROWS,
    IN_THIRDS,
    Candidate,
    Comparison,
    Ranking,
    Trial,
    best_of,
    ranked_kernels,
)
from inducing.learning.objective import parameters_of, varied
from inducing.learning.recipes import Task
from inducing.numerics import workers


def _rows(n=150, rough=False):
    rng = np.random.default_rng(2)
    X = rng.uniform(0, 10, (n, 1))
    K = (ig.kernels.Matern12 if rough else ig.kernels.RBF)(1.5)(X, X) + 1e-8 * np.eye(n)
    return X, np.linalg.cholesky(K) @ rng.standard_normal(n) + 0.02 * rng.standard_normal(n)


@pytest.mark.parametrize(("aim", "best"), [("both", 1), ("rmse", 0), ("log_loss", 2)])
def test_error_and_log_density_judge_together(aim, best):
    trials = [Trial("a", 1.0, -3.0), Trial("b", 1.015, -1.0), Trial("c", 1.05, 0.0)]
    assert best_of(trials, aim) == best


@pytest.mark.parametrize("rough", [False, True])
def test_rows_that_others_predict_prefer_the_kernel_that_made_them(rough):
    X, y = _rows(rough=rough)
    kernels = {"rbf": ig.kernels.RBF(3.0), "matern12": ig.kernels.Matern12(3.0)}
    task = Task(kernels["rbf"], ig.bases.Points(X[:5]), "fitc", 0.1, X, y, progress=False)
    ranked = ranked_kernels(task.stage(), kernels)
    assert ranked[0].name.split(",")[0] == ("matern12" if rough else "rbf")


@pytest.mark.parametrize(("n", "groups"), [(150, 3), (IN_THIRDS, 1)])
def test_kernels_are_judged_by_rows_they_were_not_learned_from(n, groups):
    X, y = _rows(n)
    task = Task(ig.kernels.RBF(1.5), ig.bases.Points(X[:5]), "fitc", 4e-4, X, y, progress=False)
    compared = Comparison(task.stage(), COMPARED_ROWS, IN_THIRDS, 3)
    outcomes = compared.climbed([([parameters_of(task.problem)], {})])[0]
    assert len(outcomes) == len(compared.learning) == groups
    squares, densities = [], []
    for stage, fresh, outcome in zip(compared.learning, compared.fresh, outcomes):
        judged, p = np.isin(X[:, 0], compared.judging.rows.X[fresh, 0]), outcome.parameters
        assert not np.isin(X[judged, 0], stage.rows.X[:, 0]).any()
        left = ig.leave_one_out(p.kernel, None, "exact", p.noise, X, y, mean=p.mean)
        squares += list(left.error[judged] ** 2)
        densities += list(left.log_density[judged])
    assert len(squares) == (n if groups == 3 else n - COMPARED_ROWS)  # each row once
    trial = compared.judged([outcome.parameters for outcome in outcomes], "rbf")
    assert trial.rmse == pytest.approx(np.sqrt(np.mean(squares)), rel=1e-6)
    assert trial.log_density == pytest.approx(np.mean(densities), rel=1e-6)


@pytest.mark.parametrize("lengths", [(1.5, 300.0), (300.0, 1.5)])
def test_of_several_starts_the_likeliest_end_is_taken(lengths):
    X, y = _rows()
    task = Task(ig.kernels.RBF(1.5), ig.bases.Points(X[:5]), "fitc", 4e-4, X, y, progress=False)
    compared, given = Comparison(task.stage(), COMPARED_ROWS, IN_THIRDS, 2), parameters_of(task.problem)
    starts = [given._replace(kernel=ig.kernels.RBF(length)) for length in lengths]
    alone = [compared.climbed([([start], {})])[0][0].run.value for start in starts]
    assert abs(alone[0] - alone[1]) > 1.0
    together = compared.climbed([(starts, {})])[0]
    assert together[0].run.value == max(alone) and len(together) == 3


def test_learned_noise_that_leaves_no_process_is_not_taken(monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.uniform(-2.0, 2.0, (200, 1))
    y = np.sin(2.0 * X[:, 0]) + np.exp(X[:, 0]) * rng.standard_normal(200) * 0.1
    assert ig.SparseGPRegressor(random_state=0).fit(X, y).noise_ is None  # learned

    def fails(*arguments):
        raise FactorisationError("the sites leave no proper process")

    monkeypatch.setattr(choice, "noise_of_left_out", fails)
    model = ig.SparseGPRegressor(random_state=0).fit(X, y)
    assert model.noise_ > 0.0 and not any("learned noise" in trial.name for trial in model.choice_.trials)


def test_a_linear_function_and_a_sum_of_curves_are_found():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((200, 6))
    noise = 0.3 * rng.standard_normal(200)
    lines = ig.SparseGPRegressor().fit(X, X @ [1.0, 0.8, -0.5, 0.3, 0.6, -1.0] + noise)
    curves = ig.SparseGPRegressor().fit(X, np.sum(np.sin(3.0 * X), axis=1) + noise)
    assert "Linear" in str(lines.kernel_)
    assert "columns=(0,)" in str(curves.kernel_)
    errors = {trial.name: trial.rmse for trial in curves.choice_.trials}
    assert min(errors.values()) < 0.8 * min(v for name, v in errors.items() if "curves" not in name)


def assert_taken(model, kind, share, new, folder):
    """A kernel of this kind was taken, errs less than a share of all others, and comes back from a file."""
    assert kind in str(model.kernel_)
    errors = {trial.name: trial.rmse for trial in model.choice_.trials}
    assert min(errors.values()) < share * min(v for name, v in errors.items() if kind.lower() not in name)
    assert np.all(model.relevance_ > 0.0)
    model.save(folder / "model.gp")
    np.testing.assert_array_equal(ig.load(folder / "model.gp").predict(new), model.predict(new))


@pytest.mark.parametrize(("least", "taken"), [(1.0, True), (0.0, False)])
def test_a_kernel_on_trial_is_no_measure_for_those_before_it(least, taken):
    """It is learned beside them: the linear kernel, though far behind, is still judged by all groups."""
    X, y = _rows()
    task = Task(ig.kernels.RBF(1.5), ig.bases.Points(X[:5]), "fitc", 4e-4, X, y, progress=False)
    given = parameters_of(task.problem)

    def beats(ranking):
        assert [each.name for each in ranking.learned] == ["linear"]
        return -np.inf, least * ranking.least_error()

    linear = Candidate("linear", (ig.kernels.Linear(1.0),), given, {})
    on_trial = Candidate("rbf", (task.kernel,), given, {}, beats)
    together, apart = Ranking(task.stage(), "both"), Ranking(task.stage(), "both")
    together.learn([linear, on_trial])
    apart.learn([linear])
    apart.learn([on_trial])
    trials, same = [
        [replace(each.trial, seconds=0.0) for each in ranking.in_order()] for ranking in (together, apart)
    ]
    assert trials == same
    assert [trial.name for trial in trials] == (["rbf", "linear"] if taken else ["linear", "rbf"])
    assert [each.name for each in together.behind] == ([] if taken else ["rbf"])


def test_levels_in_no_order_are_found(tmp_path):
    rng = np.random.default_rng(6)
    X = np.column_stack([rng.integers(0, 10, (150, 2)), rng.uniform(-1.0, 1.0, 150)])
    odd, even = np.isin(X[:, 0], [2, 5]), np.isin(X[:, 1], [1, 7])  # the other levels are all alike
    y = np.where(odd, 1.0, np.sin(5.0 * X[:, 2])) - 1.5 * even + 0.05 * rng.standard_normal(150)
    model = ig.SparseGPRegressor().fit(X, y)
    new = rng.uniform(-1.0, 11.0, (9, 3))  # between levels, and beyond
    assert_taken(model, "Levels", 0.8, new, tmp_path)


def test_inputs_with_long_tails_are_warped(tmp_path):
    """A wave in the logarithm of an input, half of whose values are in a hundredth of its range."""
    rng = np.random.default_rng(2)
    X = np.column_stack([np.exp(1.5 * rng.standard_normal(300)), rng.uniform(-1.0, 1.0, 300)])
    y = np.sin(3.0 * np.log(X[:, 0])) + X[:, 1] + 0.05 * rng.standard_normal(300)
    model = ig.SparseGPRegressor().fit(X, y)
    new = np.column_stack([np.exp(2.0 * rng.standard_normal(9)), rng.uniform(-1.0, 1.0, 9)])
    assert_taken(model, "Warped", 0.9, new, tmp_path)


def test_few_rows_get_the_exact_gp():
    X, y = _rows(rough=True)
    model = ig.SparseGPRegressor().fit(X, y)
    assert model.approximation_ == "exact" and model.basis_size_ == len(X)
    assert any(name in str(model.kernel_) for name in ("Matern12", "RationalQuadratic"))
    assert model.choice_.trials[0].name.startswith("exact")
    assert model.noise_ > 0 and model.noise_posterior_ is None  # which does not vary here


@pytest.mark.parametrize("most", [10_000, 100])
def test_noise_that_varies_is_learned(monkeypatch, tmp_path, most):
    monkeypatch.setattr("inducing.learning.choice.EXACT_UP_TO", most)
    rng = np.random.default_rng(3)
    X = rng.uniform(-3, 3, (500, 1))
    std = np.where(X[:, 0] < 0, 0.05, 0.6)
    y = np.sin(2 * X[:, 0]) + std * rng.standard_normal(500)
    model = ig.SparseGPRegressor(max_iter=30).fit(X, y)
    assert model.noise_posterior_ is not None and model.noise_ is None
    assert model.choice_.trials[1 if most > 100 else -1].name.endswith("learned noise")
    Xs = np.array([[-1.5], [1.5]])
    found = model.predict(Xs, return_std=True)[1]
    np.testing.assert_allclose(found, [0.05, 0.6], rtol=0.35)
    model.save(tmp_path / "m.gp")
    again = ig.load(tmp_path / "m.gp")
    np.testing.assert_allclose(again.predict(Xs, return_std=True)[1], found, rtol=1e-6)
    plain = ig.SparseGPRegressor(max_iter=30, objective="rmse").fit(X, y)
    assert plain.noise_posterior_ is None  # which no error depends on


def test_many_rows_get_the_better_of_neighbours_and_a_basis(monkeypatch):
    monkeypatch.setattr("inducing.learning.choice.EXACT_UP_TO", 100)
    X, y = _rows(600, rough=True)
    model = ig.SparseGPRegressor(max_iter=20).fit(X, y)
    errors = {trial.name: trial.rmse for trial in model.choice_.trials}
    assert set(errors) <= {"fitc", "neighbours", f"{model.approximation_}, learned noise"}
    assert len(errors) >= 2
    assert errors[model.approximation_] <= 1.02 * min(errors.values())


@pytest.mark.parametrize("given", [{"n_inducing": 12}, {"inducing": "random"}, {"fixed": ("noise",)}])
def test_a_parameter_of_a_sparse_basis_asks_for_one(given):
    X, y = _rows()
    model = ig.SparseGPRegressor(max_iter=3, **given).fit(X, y)
    assert model.approximation_ == "fitc" and model.choice_ is None


def test_parameters_that_are_equal_but_other_objects_change_nothing():
    """Text is another object after pickling, in a worker of joblib, and from a command line."""
    X, y = _rows()
    model = ig.SparseGPRegressor(random_state=0)
    sent = pickle.loads(pickle.dumps(model)).set_params(fixed=[], basis="".join(["au", "to"]))
    np.testing.assert_array_equal(sent.fit(X, y).predict(X), model.fit(X, y).predict(X))
    assert sent.approximation_ == model.approximation_ == "exact"


def test_files_size_and_time_bound_the_choice(tmp_path):
    X, y = _rows()
    small = ig.SparseGPRegressor(max_file_size=4_500, max_iter=5).fit(X, y)
    assert small.approximation_ != "exact"
    small.save(tmp_path / "small.gp")
    assert (tmp_path / "small.gp").stat().st_size <= 4_500
    began = time.perf_counter()
    hurried = ig.SparseGPRegressor(time_budget=0.0).fit(X, y)
    assert time.perf_counter() - began < 20
    assert len(hurried.choice_.trials) == 1  # of the first kernel


@pytest.mark.parametrize("limit", [11_000, 11_300, 12_000])
def test_what_is_chosen_fits_into_the_file_allowed(limit, tmp_path):
    """200 rows of 3 inputs and a target are 6,400 bytes; a basis of 15 is 1,320 more, and the text 3,700."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200)
    model = ig.SparseGPRegressor(max_file_size=limit, max_iter=3, random_state=0).fit(X, y)
    assert ("neighbours" in [trial.name for trial in model.choice_.trials]) == (limit == 12_000)
    assert model.save(tmp_path / "m.gp") <= limit


@pytest.mark.parametrize(("limit", "error"), [(100, ParameterError), (3_000, ModelFileError)])
def test_fit_refuses_what_save_would(limit, error):
    X, y = _rows()
    with pytest.raises(error, match=f"max_file_size is {limit}; use a "):
        ig.SparseGPRegressor(max_file_size=limit, max_iter=3).fit(X, y)


def test_an_exact_process_has_a_file_of_its_rows_alone(tmp_path):
    X, y = _rows()
    n, d = X.shape
    limit = 8 * n * (d + 2) + 4_000
    model = ig.SparseGPRegressor(approximation="exact", max_file_size=limit, max_iter=3).fit(X, y)
    assert model.save(tmp_path / "m.gp") <= limit
    few = 8 * n * (d + 2) + 1_000
    with pytest.raises(ParameterError, match=f"max_file_size is {few}; use approximation='fitc'"):
        ig.SparseGPRegressor(approximation="exact", max_file_size=few).fit(X, y)


@pytest.mark.parametrize("n", [90, 1100])
def test_no_climb_of_the_choice_takes_more_iterations_than_asked_for(n, monkeypatch):
    run, outcomes = choice.Stage.run, []
    monkeypatch.setattr(choice.Stage, "run", lambda stage: outcomes.append(run(stage)) or outcomes[-1])
    X, y = _table(n)
    ig.SparseGPRegressor(max_iter=2).fit(X, y)
    assert max(outcome.run.iterations for outcome in outcomes) == 2
    outcomes.clear()
    model = ig.SparseGPRegressor(max_iter=0, kernel="rbf").fit(X, y)
    assert all(outcome.run.evaluations == 1 for outcome in outcomes) and model.n_iter_ == 0
    assert model.noise_ == pytest.approx(0.1 * np.var(y)) and model.kernel_.variance == pytest.approx(1.0)


def test_an_unknown_objective_is_named():
    X, y = _rows()
    with pytest.raises(UnknownNameError, match="objective must be one of both, rmse, log_loss"):
        ig.SparseGPRegressor(objective="mae").fit(X, y)


def test_a_kernel_is_chosen_for_a_sparse_basis_too():
    X, y = _rows(rough=True)
    model = ig.SparseGPRegressor(kernel="auto", n_inducing=30, max_iter=3).fit(X, y)
    assert model.approximation_ == "fitc"
    assert any(name in str(model.kernel_) for name in ("Matern12", "RationalQuadratic"))


@pytest.mark.parametrize("given", [{"likelihood": "poisson"}, {"likelihood": "studentt"}, {"noise": None}])
def test_a_kernel_is_chosen_under_any_likelihood_and_noise_by_row(given):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (90, 2))
    y = rng.poisson(np.exp(1.0 + 1.5 * np.sin(2.0 * X[:, 0])))
    given = {"noise": np.full(90, 2.0)} if "noise" in given else given
    model = ig.SparseGPRegressor(kernel="auto", n_inducing=10, max_iter=3, **given).fit(X, y)
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.7


def test_saved_models_remember_the_choice(tmp_path):
    X, y = _rows()
    model = ig.SparseGPRegressor().fit(X, y)
    model.save(tmp_path / "m.gp")
    again = ig.load(tmp_path / "m.gp")
    assert again.approximation_ == "exact"
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_sum_of_functions_is_found():
    """Ishigami's function is one of its second input and one of the others; a product errs by a tenth."""
    X, new = np.random.default_rng(1).uniform(-np.pi, np.pi, (2, 150, 3))

    def f(X):
        return np.sin(X[:, 0]) * (1 + 0.1 * X[:, 2] ** 4) + 7 * np.sin(X[:, 1]) ** 2

    model = ig.SparseGPRegressor(random_state=0).fit(X, f(X))
    assert np.sqrt(np.mean((model.predict(new) - f(new)) ** 2)) < 0.03 * np.std(f(X))


def _table(n=120):
    rng = np.random.default_rng(5)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.standard_normal(n)


def test_candidates_are_the_same_on_any_number_of_cores(monkeypatch):
    found = []
    for cores in (1, 3):
        monkeypatch.setattr(workers, "_process_cores", lambda cores=cores: cores)
        monkeypatch.setattr(workers, "_pool", None)
        model = ig.SparseGPRegressor(random_state=0).fit(*_table())
        found.append([(t.name, t.rmse, t.log_density) for t in model.choice_.trials])
    assert [name for name, *_ in found[0]] == [name for name, *_ in found[1]]
    assert len(found[0]) > 6
    np.testing.assert_allclose([x[1:] for x in found[0]], [x[1:] for x in found[1]], rtol=1e-9)


def test_someone_who_listens_hears_every_climb_in_turn(monkeypatch):
    monkeypatch.setattr(workers, "_process_cores", lambda: 3)
    heard = []
    model = ig.SparseGPRegressor(
        random_state=0, progress=lambda i, value: heard.append(threading.get_ident())
    )
    model.fit(*_table())
    assert set(heard) == {threading.get_ident()} and len(heard) > 50


def _interrupted(monkeypatch, after):
    """Ctrl-C once, when so many climbs of candidates have ended; returns the list that their ends go into."""
    climb, ends, signals = candidates._climb, [], {"once": signal.SIGINT}

    def interrupted(*given):
        asked = signals.pop("once", None) if len(ends) >= after else None
        if asked is not None:
            signal.raise_signal(asked)
            time.sleep(0.05)
        ends.append(climb(*given))
        return ends[-1]

    monkeypatch.setattr(candidates, "_climb", interrupted)
    return ends


def test_ctrl_c_ends_all_climbs_and_gives_the_best_so_far(monkeypatch, capsys):
    """From several threads; the main one, which alone hears signals, may be waiting for another."""
    monkeypatch.setattr(workers, "_process_cores", lambda: 2)
    monkeypatch.setattr(workers, "_pool", None)
    runs = _interrupted(monkeypatch, after=4)
    before = signal.getsignal(signal.SIGINT)
    model = ig.SparseGPRegressor(random_state=0).fit(*_table())
    assert signal.getsignal(signal.SIGINT) is before
    assert "ending early" in capsys.readouterr().err
    assert "interrupted" in model.fit_result_.message
    late = [outcome.run for outcomes in runs[6:] for outcome in outcomes]
    assert late and all(run.evaluations <= 1 for run in late)
    assert model.score(*_table()) > 0.8
    again = ig.SparseGPRegressor(random_state=0, n_inducing=10, max_iter=5).fit(*_table())
    assert "interrupted" not in again.fit_result_.message


def test_ctrl_c_while_a_kernel_is_found_ends_that_and_all_that_follows(monkeypatch, capsys):
    """Of a sparse basis the recipe comes after it, which takes the best kernel so far as it is."""
    runs = _interrupted(monkeypatch, after=3)
    settings = dict(approximation="vfe", n_inducing=10, kernel="auto", max_iter=5)
    model = ig.SparseGPRegressor(random_state=0, **settings).fit(*_table())
    assert "ending early" in capsys.readouterr().err
    late = [outcome.run for outcomes in runs[6:] for outcome in outcomes]
    assert late and all(run.evaluations <= 1 for run in late)
    assert model.fit_result_.n_iterations == 0 and "interrupted" in model.fit_result_.message


def test_the_chosen_kernel_is_learned_from_all_rows_up_to_a_limit(monkeypatch):
    run, sizes = choice.Stage.run, []

    def counted(stage):
        sizes.append(stage.rows.n)
        return run(stage)

    monkeypatch.setattr(choice.Stage, "run", counted)
    monkeypatch.setattr(candidates, "IN_THIRDS", 100)
    monkeypatch.setattr(candidates, "COMPARED_ROWS", 40)
    monkeypatch.setattr(choice, "IN_THIRDS", 100)
    monkeypatch.setattr(choice, "RACED", 50)
    for limit, n in ((110, 110), (1500, 120)):
        sizes.clear()
        monkeypatch.setattr(choice, "LEARNED", limit)
        model = ig.SparseGPRegressor(random_state=0).fit(*_table(120))
        exact = [size for size in sizes if size <= 120]
        assert exact[0] == 40 and exact.count(50) >= 1 and n in exact and max(exact) == n
        assert model.choice_.trials[0].name.startswith("exact")


def test_few_rows_of_many_inputs_do_not_promise_too_much():
    """With free lengthscales bands of 95 % held 61 % of new rows."""
    held = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((560, 20))
        y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(560)
        mean, std = ig.SparseGPRegressor(random_state=0).fit(X[:60], y[:60]).predict(X[60:], return_std=True)
        held.append(ig.metrics.coverage(y[60:], mean, std**2))
    assert np.mean(held) > 0.75


def test_neighbours_get_the_best_kernel_without_terms(monkeypatch):
    monkeypatch.setattr(choice, "EXACT_UP_TO", 100)
    train, ranked, tasks = choice.train, [], []
    monkeypatch.setattr(
        choice, "ranked_kernels", lambda *a, **k: ranked.extend(ranked_kernels(*a, **k)) or ranked
    )
    monkeypatch.setattr(choice, "train", lambda name, task: tasks.append(task) or train(name, task))
    X, y = ig.datasets.friedman1(300, rng=0)
    ig.SparseGPRegressor(max_iter=20, random_state=0).fit(X, y)
    kernels = [each.outcome.parameters.kernel for each in ranked]
    assert isinstance(kernels[0], ig.kernels.Sum)
    plain = next(kernel for kernel in kernels if not isinstance(kernel, ig.kernels.Sum))
    assert [task.kernel for task in tasks if task.approximation == "neighbours"] == [plain]


@pytest.mark.parametrize(("n", "seed"), [(60, 1), (500, 0), (1200, 0)])
def test_targets_that_are_nearly_all_zero_have_an_exact_process(n, seed):
    """A third of the rows, or the 350 that kernels are learned from, may have no other target."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((n, 3)), np.zeros(n)
    y[rng.integers(n)] = 1.0
    model = ig.SparseGPRegressor(random_state=0).fit(X, y)
    assert model.approximation_ == "exact"
    assert all(trial.log_density > -1e3 for trial in model.choice_.trials[:1])
    assert np.all(np.isfinite(model.predict(X, return_std=True)))


def test_rows_to_learn_from_have_a_target_that_differs_where_there_is_one():
    X, y = np.arange(12.0)[:, None], np.zeros(12)
    problem = Task(ig.kernels.RBF(), ig.bases.Points(X[:2]), "vfe", 0.1, X, y, progress=False).problem
    rows = np.array([3, 8, 5])
    np.testing.assert_array_equal(varied(problem, rows), rows)
    problem.Y[8] = 1.0
    np.testing.assert_array_equal(varied(problem, rows), rows)
    np.testing.assert_array_equal(varied(problem, rows[::2]), [8, 5])
