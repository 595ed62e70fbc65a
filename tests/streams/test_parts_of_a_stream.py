"""The small parts of a stream, each by itself: waiting for lines, recognising a format, running scores."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import inducing as ig
from inducing import errors
from inducing.inference.online import Seen
from inducing.model.likelihoods import Gaussian, Probit, StudentT
from inducing.streams import lines
from inducing.streams.adapting import Adaptation, _scale_slopes
from inducing.streams.drift import Drift, rows_of, standardised
from inducing.streams.memory import Memory
from inducing.streams.scores import RunningClassification, RunningRegression, scores_from
from inducing.streams.session import Place, Predictions


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    """A stream to read, its end to write, and the same of a signal."""
    ends = (*os.pipe(), *os.pipe())
    yield ends
    for fd in ends:
        os.close(fd)


def test_lines_come_whole_and_the_rest_waits(pipes: tuple[int, int, int, int]) -> None:
    read, write, stop_read, stop_write = pipes
    waiting = lines.Lines(read, lines.Stop(stop_read))
    assert waiting.wait(0.0) == [] and waiting.wait(-1.0) == [] and not waiting.ended
    os.write(write, b"a,y\n1,2\n3,")
    assert waiting.first() == b"a,y\n" and waiting.left() == [b"1,2\n"] and waiting.rest == b"3,"
    os.write(write, b"4\n5")
    assert waiting.wait(1.0) == [b"3,4\n"] and waiting.rest == b"5"
    waiting.stop.ask()
    os.write(write, b"6\n")
    assert waiting.wait(1.0) == [] and waiting.first() == b""  # what has come is left where it is
    os.write(stop_write, b"!")
    start = time.monotonic()
    assert lines.Lines(read, lines.Stop(stop_read)).wait(0.0) == [b"6\n"]
    assert lines.Lines(read, lines.Stop(stop_read)).wait(30.0) == []  # woken by the signal
    assert time.monotonic() - start < 15.0


@pytest.mark.parametrize("follow", [False, True])
def test_the_end_of_a_file(follow: bool, tmp_path, pipes: tuple[int, int, int, int]) -> None:
    (tmp_path / "rows").write_bytes(b'{"a": 1}\n{"a": 2}')
    fd = os.open(tmp_path / "rows", os.O_RDONLY)
    try:
        waiting = lines.Lines(fd, lines.Stop(pipes[2]), follow=follow)
        assert waiting.wait(1.0) == [b'{"a": 1}\n']
        start = time.monotonic()
        assert waiting.wait(0.05) == ([] if follow else [b'{"a": 2}'])
        assert waiting.ended is not follow and waiting.rest == (b'{"a": 2}' if follow else b"")
        assert not follow or time.monotonic() - start > 0.04  # it does not turn round and round
    finally:
        os.close(fd)


def test_a_closed_standard_input_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has no sys.stdin where a program is started with `<&-`, as services are."""
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(errors.DataNotFoundError, match="Standard input is closed"), lines.opened("-"):
        pass


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_closes_ends_a_stream_unless_it_should_not(ignored: bool) -> None:
    """SIGHUP ended the process with rows that were not saved; `nohup` ignores it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        with lines.stop_on_signals() as stop:
            assert (signal.getsignal(signal.SIGHUP) == signal.SIG_IGN) == ignored
            assert ignored or signal.getsignal(signal.SIGHUP) == stop.ask
            signal.raise_signal(signal.SIGHUP)
            assert stop.asked() != ignored
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_format_is_recognised_by_its_first_line() -> None:
    def of(line: bytes, kind: str = "auto", **more: object) -> lines.Format:
        told = {"target": "y", "exclude": (), "inputs": None, "labels": False} | more
        return lines.Format.of(line, kind, **told)  # type: ignore[arg-type]

    assert of(b"a,y\n").separator == "," and of(b"a\ty\n").separator == "\t"
    assert of(b'{"a": 1, "y": 2}').separator is None
    assert of(b"a\tb,y\n", "csv").inputs == ("a\tb",) and of(b"a,b\ty\n", "tsv").inputs == ("a,b",)
    shuffled = of(b"y,b,a\n", inputs=("a", "b"))
    assert shuffled.inputs == ("a", "b") and shuffled.read(b"1,2,3\n") == ([3.0, 2.0], 1.0)
    assert of(b"a,b,y\n", exclude=("a",)).inputs == ("b",)
    with pytest.raises(errors.UnknownNameError, match="not 'xml'"):
        of(b"a,y\n", "xml")
    for line, match in ((b"a,a,y\n", "two columns 'a'"), (b"a,b\n", "no column 'y'")):
        with pytest.raises(errors.ColumnError, match=match):
            of(line)
    for more in ({"exclude": ("y",)}, {"exclude": ("a",)}):
        with pytest.raises(errors.ColumnError, match="Nothing is left to predict 'y' from"):
            of(b"a,y\n", **more)


def test_a_number_that_is_not_finite_is_named_wherever_it_stands() -> None:
    plain = lines.Format.of(b"a,b,y\n", "csv", "y", (), None, False)
    for line, what in (
        (b"inf,1,2\n", "'a' is inf"),
        (b"1,-inf,2\n", "'b' is -inf"),
        (b"1,2,nan\n", "'y' is"),
    ):
        with pytest.raises(lines.BadRow, match=what):
            plain.read(line)
    assert plain.read(b"1,2,3\n") == ([1.0, 2.0], 3.0)


def test_running_scores_are_those_of_all_rows() -> None:
    """The trivial predictor of a row is a Gaussian of the targets before it."""
    rng = np.random.default_rng(0)
    y, mean, density = rng.normal(3.0, 2.0, 50), rng.normal(3.0, 1.0, 50), rng.normal(-1.0, 0.1, 50)
    mean[[0, 1, 20]] = np.nan  # rows without a prediction
    scores = RunningRegression()
    for part in (slice(0, 1), slice(1, 7), slice(7, 8), slice(8, 50)):
        scores.add(y[part], mean[part], density[part])
    rows = [i for i in range(2, 50) if i != 20]
    before = [(np.mean(y[:i]), np.var(y[:i])) for i in rows]
    trivial = [0.5 * (np.log(2 * np.pi * v) + (y[i] - m) ** 2 / v) for i, (m, v) in zip(rows, before)]
    squares = [(y[i] - m) ** 2 for i, (m, _) in zip(rows, before)]
    assert scores.rows == 47 and scores.targets == 50
    assert_allclose(scores.squared_trivial, np.sum(squares), rtol=1e-12)
    values = scores.values()
    assert_allclose(values["SMSE"], np.sum((y - mean)[rows] ** 2) / np.sum(squares), rtol=1e-12)
    assert_allclose(values["MSLL"], np.mean(-density[rows]) - np.mean(trivial), rtol=1e-10)
    assert_allclose(values["NLPD"], np.mean(-density[rows]), rtol=1e-12)
    assert RunningRegression().values() == {} and isinstance(scores_from({"rows": 1}), RunningRegression)


def test_running_scores_of_labels() -> None:
    p = np.array([[0.5, 0.3, 0.2], [np.nan] * 3, [0.1, 0.2, 0.7], [0.6, 0.4, 0.0]])
    scores = RunningClassification()
    assert scores.values() == {}
    scores.add(np.array(["a", "b", "b", "c"]), p, ["a", "b", "c"])
    assert scores.rows == 3 and scores.wrong == 2
    assert_allclose(scores.loss, -np.log(0.5) - np.log(0.2) - np.log(1e-300))
    assert_allclose(scores.values()["error"], 2 / 3)
    assert isinstance(scores_from({"rows": 1, "wrong": 1}), RunningClassification)


def test_an_input_is_text_where_more_than_half_of_its_values_are_no_numbers() -> None:
    format = lines.Format(",", "y", ("a", "b"), False, 3, (0, 1, 2))
    rows = [b"1,x,2\n", b"u,y,2\n", b"3,z,2\n", b"v,4,2\n"]
    assert format.typed(rows).text == {"b"}  # of the first half are


def test_the_test_for_drift_keeps_the_moments_of_all_errors_since_the_last_alarm() -> None:
    errors = np.random.default_rng(0).normal(size=90)
    state = Drift().after(errors[:40], 1).after(errors[40:], 41)
    assert state.rows == 90 and state.alarms == 0
    assert_allclose([state.mean, state.square], [np.mean(errors), np.mean(errors**2)], rtol=1e-12)


@pytest.mark.parametrize("last", [b'{"a": 2', b" {", b"2", b"[2]"])
def test_half_a_row_at_the_end_is_no_row(last: bytes, pipes: tuple[int, int, int, int]) -> None:
    read, write, stop_read, _ = pipes
    os.write(write, b'{"a": 1}\n' + last)
    waiting = lines.Lines(read, lines.Stop(stop_read))
    assert waiting.wait(1.0) == [b'{"a": 1}\n']
    ended = os.open(os.devnull, os.O_RDONLY)
    try:
        waiting.fd = ended
        assert waiting.wait(1.0) == [] and waiting.ended and waiting.rest == last
    finally:
        os.close(ended)


def test_nobody_asked_for_predictions_or_they_go_to_the_terminal() -> None:
    with Predictions.opened(None, Place()) as nothing, Predictions.opened("-", Place()) as shown:
        assert nothing.file is None and shown.file is sys.stdout


def test_the_test_for_drift_is_three_sums_that_never_fall_below_zero() -> None:
    z = np.clip(1.3 * np.random.default_rng(2).normal(size=60), -4.0, 4.0)
    n = np.arange(1, 61)
    level, square = z - np.cumsum(z) / n, z**2 - np.cumsum(z**2) / n
    state, seen = Drift(), set()
    for i in range(60):
        state = state.after(z[i : i + 1], i + 1)
        for found, steps in ((state.up, level - 0.5), (state.down, -level - 0.5), (state.spread, square - 1)):
            walk = np.concatenate([[0.0], np.cumsum(steps[: i + 1])])
            assert_allclose(found, walk[-1] - np.min(walk), rtol=1e-10, atol=1e-12)
        seen.add((state.up > 0, state.down > 0, 0 < state.spread < 1))
    assert state.alarms == 0 and {part[2] for part in seen} == {True, False} and len(seen) > 3


def test_errors_in_standard_deviations_of_what_was_predicted() -> None:
    rng = np.random.default_rng(0)
    mean, variance, Y = rng.normal(size=(5, 2, 3)), rng.uniform(0.1, 2.0, (5, 2)), rng.normal(size=(5, 2, 3))
    seen = Seen(mean, variance, np.zeros((5, 2)))
    errors = standardised(Gaussian(0.3), seen, Y)
    assert_allclose(errors, (Y - mean) / np.sqrt(variance[:, :, None] + 0.3), rtol=1e-12)
    assert_allclose(rows_of(errors), [np.sum(part) / np.sqrt(6.0) for part in errors], rtol=1e-12)
    assert rows_of(errors[:, :1, :1]) == errors[:, 0, 0].tolist()
    assert_allclose(rows_of(errors[:, :1, :2]), np.sum(errors[:, 0, :2], axis=1) / np.sqrt(2.0), rtol=1e-12)
    told = standardised(StudentT(df=5.0, scale=0.4), seen, Y)
    spread = np.sqrt(variance[:, :, None] + 0.4**2 * 5.0 / 3.0)
    assert_allclose(told, (Y - mean) / spread, rtol=1e-9)


def test_errors_of_labels_are_their_surprise() -> None:
    """-log p less its mean under the prediction, over its standard deviation: of p and 1 - p, two values."""
    p = np.array([0.05, 0.3, 0.7, 0.99])
    seen = Seen(np.zeros((4, 1, 1)), np.ones((4, 1)), np.log(p)[:, None])
    found = standardised(Probit(), seen, np.ones((4, 1, 1)))
    values, shares = -np.log(np.stack([p, 1 - p])), np.stack([p, 1 - p])
    average = np.sum(shares * values, axis=0)
    spread = np.sqrt(np.sum(shares * (values - average) ** 2, axis=0))
    assert_allclose(found, (values[0] - average) / spread, rtol=1e-10)
    assert rows_of(found) == found.tolist()


@pytest.mark.parametrize("outputs", [1, 2])
def test_noise_that_is_too_small_by_a_little_is_told_by_as_much(outputs: int) -> None:
    """The information about a log scale is 2: errors that are e^δ too wide ask for 2δ a row."""
    n, delta = 20_000, 0.05
    z = stats.norm.ppf((np.arange(n) + 0.5) / n)
    errors = np.repeat(np.exp(delta) * z[:, None, None], outputs, axis=2)
    seen = Seen(np.zeros_like(errors), np.zeros((n, 1)), np.zeros((n, 1)))
    assert_allclose(np.mean(_scale_slopes(Gaussian(1.0), errors, seen, errors)), 2.0 * delta, rtol=0.1)
    assert abs(np.mean(_scale_slopes(Gaussian(1.0), errors, seen, np.exp(-delta) * errors))) < 2.0e-3


def test_a_memory_ranks_rows_by_their_leverage() -> None:
    variance, noise = np.array([0.02, 0.5, 3.0, 1e-6]), 0.7
    empty, row = Memory.empty(100.0, 1, 1), np.ones((1, 1))
    keys = [empty.with_rows(row, row, v[None], Gaussian(noise), 5).keys[0] for v in variance]
    leverage = np.maximum(variance / (variance + noise), 0.01)
    assert_allclose(np.diff(keys), np.diff(np.log(leverage)), rtol=1e-10)


def test_a_model_is_learned_again_200_rows_after_an_alarm() -> None:
    memory = Memory.empty(100.0, 1, 1)
    for rows in (199, 200):
        state = Adaptation.begun(None, "relearn", True, memory)
        state.unlearned, state.drift = True, Drift(rows=rows)
        assert state.to_be_learned == (rows == 200)


def test_an_alarm_waits_for_thirty_rows() -> None:
    """The level is far above its threshold by then: 20 rows of 4 after 10 of 0."""
    state = Drift().after([0.0] * 10 + [4.0] * 19, 1)
    assert state.alarms == 0 and state.up > 20.0 and state.rows == 29
    assert state.after([4.0], 30) == Drift(alarms=1, at=(30,))  # it begins anew
    state = state.after([4.0, 4.0], 30)
    assert state.at == (30,) and state.rows == 1


def test_a_memory_s_noise_is_that_of_splitmix() -> None:
    """The keys of rows 1 to 3 hold Gumbel noise of the first numbers from the seed 0. [Steele et al. 2014]"""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    uniform = np.array([(number >> 11) / 2.0**53 + 2.0**-54 for number in published])
    rows, variance = np.ones((3, 1)), np.full(3, 0.5)
    keys = Memory.empty(100.0, 1, 1).with_rows(rows, rows, variance, Gaussian(0.5), 1).keys
    expected = np.log(0.5) + np.log(2.0) * np.arange(1, 4) / 100.0 - np.log(-np.log(uniform))
    assert_allclose(keys, expected, rtol=1e-12)


def test_a_mixture_of_experts_that_know_much_has_a_factor() -> None:
    """Of three experts who leave 1e-9 of a standard deviation in one direction, its square is rounding."""
    r = np.random.default_rng(0)
    Z = np.linspace(-1.0, 1.0, 4)[:, None]
    post = ig.condition(ig.kernels.RBF(0.8, 1.0), ig.bases.Points(Z), "vfe", 0.1, Z, Z[:, 0])
    turn = np.linalg.qr(r.standard_normal((4, 4)))[0]
    roots = [np.linalg.qr((turn * [1.0 + e, 0.3, 1e-4, 1e-9]).T)[1].T for e in (0.0, 0.1, 0.2)]
    posts = [replace(post, A=A) for A in roots]
    state = Adaptation.begun("auto", "warn", False)
    assert len(state.half_lives) == 3
    found = np.asarray(state.matched(posts)[0].A)
    assert_allclose(found, np.tril(found), atol=0.0)
    scale = np.sqrt(np.mean([(1.0 + e) ** 2 for e in (0.0, 0.1, 0.2)]))
    assert_allclose(np.linalg.norm(turn.T @ found, axis=1), [scale, 0.3, 1e-4, 1e-9], rtol=1e-5)
    apart = [replace(post, A=A, w=post.w + shift) for A, shift in zip(roots, (-0.5, 0.0, 0.5), strict=True)]
    mixed = np.asarray(state.matched(apart)[0].A)
    expected = found @ found.T + np.full((4, 4), 0.5 / 3)
    assert_allclose(mixed @ mixed.T, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore::inducing.errors.DriftWarning")  # noise that triples is one
@pytest.mark.parametrize("likelihood", ["gaussian", "studentt"])
def test_noise_follows_rows_alike_however_they_come_together(likelihood: str) -> None:
    """To the bit: a stream that goes on after a kill reads other rows together than one that was not."""
    r = np.random.default_rng(1)
    X = r.uniform(-2.0, 2.0, (700, 1))
    y = np.sin(2.0 * X[:, 0]) + np.where(np.arange(700) < 300, 0.1, 0.3) * r.standard_normal(700)
    found = []
    for cuts in ([], [512], [53, 130, 131, 277, 400, 511], list(range(64, 700, 57)), list(range(51, 700))):
        settings = dict(n_inducing=12, half_life="auto", optimize=None, warmup=50)
        model = ig.OnlineGPRegressor(ig.kernels.RBF(0.6, 1.0), likelihood=likelihood, **settings)
        for part in np.split(np.arange(700), [50, *cuts]):  # the first rows say in which units
            model.partial_fit(X[part], y[part])
        found.append((model.noise_, model._adaptation.slope, model.posterior_.w.tobytes()))
        if not cuts:
            assert model.noise_ > 0.03
    assert len(set(found)) == 1
