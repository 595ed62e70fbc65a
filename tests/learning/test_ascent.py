"""Climbing: when it ends, which point it keeps, what it shows."""

import numpy as np
import pytest

import inducing as ig
from inducing.errors import FactorisationError
from inducing.learning.ascent import CHECK, Rules, climb_from
from inducing.progress import Line


class Bowl:
    """value = -½ Σ weights (x - top)²; refuses to be evaluated where `wall` says so."""

    def __init__(self, top, weights=1.0, n=1, units=None, wall=lambda x: False):
        self.top, self.weights, self.scale, self.size = (
            np.asarray(top, float),
            np.asarray(weights),
            1.0 / n,
            1,
        )
        self.bounds = [(-np.inf, np.inf)] * len(self.top)
        self.units = np.ones(len(self.top)) if units is None else units
        self.wall, self.calls = wall, 0

    def value_and_gradient(self, x):
        self.calls += 1
        if self.wall(x):
            raise FactorisationError("wall")
        step = x - self.top
        return float(-0.5 * np.sum(self.weights * step**2)), -self.weights * step


DEFAULT = Rules()


def climb(objective, rules=DEFAULT, starts=None, **options):
    seen = []
    options = {"report": lambda i, v: seen.append((i, v))} | options
    starts = [np.zeros(len(objective.top))] if starts is None else starts
    return climb_from(starts, objective, rules, **options), seen


def test_it_finds_the_top_and_says_so():
    run, seen = climb(Bowl([1.0, -2.0], [1.0, 30.0]))
    np.testing.assert_allclose(run.x, [1.0, -2.0], atol=1e-5)
    assert run.converged and run.value == pytest.approx(0.0, abs=1e-9)
    assert seen == list(enumerate(run.history, 1)) and run.iterations == len(seen)


@pytest.mark.parametrize("rules", [DEFAULT, Rules(0), Rules(3), Rules(1000, 0.0, 1e-3)])
def test_every_evaluation_is_counted(rules):
    bowl = narrow(1000)
    run, _ = climb(bowl, rules)
    assert run.evaluations == bowl.calls > 0 and run.seconds > 0.0


def test_units_change_the_way_and_not_the_end():
    weights = np.array([1.0, 1e4])
    plain, _ = climb(Bowl([1.0, 1.0], weights))
    ready, _ = climb(Bowl([1.0, 1.0], weights, units=1 / np.sqrt(weights)))
    np.testing.assert_allclose(ready.x, [1.0, 1.0], atol=1e-5)
    assert ready.iterations < plain.iterations  # a round bowl takes a step or two


def test_bounds_are_those_of_the_variables_whatever_their_units():
    bowl = Bowl([5.0, 5.0], units=np.array([10.0, 0.1]))
    bowl.bounds = [(-1.0, 2.0), (-1.0, 3.0)]
    np.testing.assert_allclose(climb(bowl)[0].x, [2.0, 3.0])


def narrow(n):
    """A valley in which every iteration gains less than the one before."""
    rng = np.random.default_rng(0)
    return Bowl(rng.standard_normal(60), 10.0 ** np.linspace(0, 6, 60), n=n)


@pytest.mark.parametrize("window", [10, 5])
def test_it_ends_when_some_iterations_gain_too_little(window):
    least = 1e-3
    run, _ = climb(narrow(1000), Rules(1000, 0.0, least, window))
    assert run.converged and "0.001 nats per row" in run.message
    gains = [run.history[i] - run.history[i - window] for i in range(window, len(run.history))]
    assert (
        gains[-1] < 1000 * least <= min(gains[:-1])
    )  # the rule is about rows: the objective is a sum over 1000 of them
    longer, _ = climb(narrow(1000), Rules(1000, 0.0, least / 100, window))
    assert longer.iterations > run.iterations


def test_the_point_of_the_best_score_is_kept():
    bowl = narrow(1)
    best = {}

    def score(x):  # falls after iteration 20, whatever the value does
        best.setdefault(len(best), x.copy())
        return -abs(len(best) - 1 - 20 // CHECK)

    run, seen = climb(bowl, Rules(1000, 0.0, score=score, patience=15))
    np.testing.assert_array_equal(run.x, best[20 // CHECK])
    assert run.score == 0 and len(seen) == 35 and "15 iterations" in run.message and run.converged
    assert run.value == pytest.approx(seen[19][1]) and run.value < seen[-1][1]


def test_no_iterations_still_score_the_start():
    run, seen = climb(Bowl([1.0]), Rules(0, score=lambda x: 7.0))
    assert run.score == 7.0 and run.value == -0.5 and not seen and not run.converged


def test_the_best_of_several_starts_wins_and_hopeless_ones_are_left_out():
    class Two(Bowl):  # a second, lower top at 10
        def value_and_gradient(self, x):
            self.top, low = (np.zeros(1), 0.0) if x[0] < 5 else (np.full(1, 10.0), 3.0)
            value, gradient = super().value_and_gradient(x)
            return value - low, gradient

    run, _ = climb(Two([0.0]), starts=[np.array([9.0]), np.array([1.0])])
    np.testing.assert_allclose(run.x, [0.0], atol=1e-6)
    wall = Bowl([0.0], wall=lambda x: x[0] > 4)
    run, _ = climb(wall, starts=[np.array([1.0]), np.array([5.0])])
    np.testing.assert_allclose(run.x, [0.0], atol=1e-6)
    with pytest.raises(FactorisationError):
        climb(wall, starts=[np.array([5.0]), np.array([1.0])])


def test_a_wall_turns_the_line_search_back():
    wall = Bowl([3.0, 3.0], [1.0, 50.0], wall=lambda x: x[1] > 3.5)
    run, _ = climb(wall, starts=[np.array([-40.0, -40.0])])
    np.testing.assert_allclose(run.x, [3.0, 3.0], atol=1e-5)
    nowhere = Bowl([3.0], wall=lambda x: False)
    nowhere.weights = np.array(np.nan)
    with pytest.raises(FactorisationError, match="the objective is not finite"):
        climb(nowhere)


@pytest.mark.parametrize("turn", [2, 3])
def test_ctrl_c_while_held_out_rows_are_looked_at_keeps_the_best_before(turn):
    looks = []  # after the first evaluation, every five iterations, and at the end

    def score(x):
        looks.append(x.copy())
        if len(looks) == turn:
            raise KeyboardInterrupt
        return -float(np.sum(x**2))

    bowl = Bowl([0.0, 0.0, 0.0], [1.0, 1e3, 1e6])
    run, _ = climb(bowl, Rules(score=score, max_iterations=7), starts=[np.array([9.0, 9.0, 9.0])])
    assert len(looks) == turn and run.interrupted and not run.converged and np.isfinite(run.value)
    np.testing.assert_array_equal(run.x, min(looks[:-1], key=lambda x: np.sum(x**2)))


def test_progress_lines_end(capsys):
    with Line(True, "vfe") as line:
        line(1, 2.0)
        line(2, 3.0)
    printed = capsys.readouterr().err  # not a terminal: what stands there in the end
    assert printed.startswith("vfe: iteration 2, log evidence 3.0000 ") and printed.count("\n") == 1
    for silent in (False, None):  # stderr is no terminal here
        with Line(silent) as line:
            line(1, 2.0)
        assert capsys.readouterr().err == ""
    X = np.linspace(0, 1, 20)[:, None]
    ig.fit(
        ig.kernels.RBF(1.0), ig.bases.Points(X[:3]), "vfe", 0.1, X, X[:, 0], max_iterations=3, progress=True
    )
    printed = capsys.readouterr().err
    assert printed.endswith("\n") and printed.count("\n") == 1 and "iteration 3" in printed
