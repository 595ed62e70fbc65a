"""Adaptation to streams that change: forgetting at rates that may be learned, noise, and drift alarms.

Forgetting discounts sites (`Learner.forget`): with a half-life H a row counts half after H rows, or after H
units of its time. It is done in steps of an eighth of H, so that a row still costs O(m²): a row of age a
counts 2^(-a/H) up to 9 %. Several half-lives are experts on one basis, weighted by the density that each gave
to the rows so far; the weights fade too: log weight ← 0.99 (log weight + log p(y)). [Raftery et al. 2010] All
rows share one noise level: when it grows by a factor, all sites become weaker by it, so that new rows weigh
no less than old ones and a change of the function is not taken for noise for long.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import DriftWarning, NonFiniteError, ParameterError, require_one_of
from ..files.records import Arrays, Plain, array, expect
from ..inference.online import Learner, Seen
from ..model.likelihoods import Gaussian, Likelihood
from ..model.posterior import Posterior
from ..numerics.compiling import FAST, compiled
from ..numerics.linalg import triangle
from ..numerics.workers import blas_for
from .drift import Drift, rows_of, standardised
from .memory import Memory

STEP, SEVERAL_STEP = 0.125, 0.25  # share of a half-life between two discounts: of one, or of several experts
BEAT = 64  # rows between two checks of noise and drift
RATES = (50.0, 400.0, np.inf)  # half-lives that "auto" chooses from
WEIGHT_MEMORY = 0.99  # factor by which the experts' log weights fade with each row
MARGIN = 0.5  # Learner.margin while rows fade: replacing a function at most rows would cost much time
LEAST_LOG_WEIGHT = -30.0  # so that an expert that was wrong may come back
MOST_QUIET = 256  # rows that are read one by one before the model's processes are written down
NOISE_ROWS = 64.0  # half-life, in rows, of the errors that the noise follows
UNUSUAL, NOISE_ROWS_THEN = 0.43, 25.0  # a slope as of a beat with no error outside; half-life from there on
WITHIN, MISSED, MISSED_SLOPE = 1.96, 0.05, 0.229  # the 95 % band, the share outside, its slope in log scale
RESCALED = 0.1  # change of the log scale after which all sites follow it
LEAST_SCALE = 1e-4  # below which the noise falls no further
FORGOTTEN = {"forget": 0.05, "reset": 1e-9}  # share of the sites that is kept after drift
LEARNED_AFTER = 200  # rows after an alarm until the model is learned again

RECORDED = ("clock", "beat", "slope", "rescaled", "leader", "alarms", "unlearned")  # fields, as plain data


@dataclass
class Adaptation:
    """E experts of different half-lives, each with its own processes, that follow the changes of a stream.

    Fields are replaced, never written into, so a shallow copy keeps the state to go back to.
    """

    half_lives: np.ndarray  # (E,), infinite where nothing is forgotten
    on_drift: str
    follows_noise: bool
    log_weights: np.ndarray  # (E,)
    since: np.ndarray  # (E,): rows, or units of time, since the last discount
    clock: float | None = None  # the time of the last row, where rows have one
    beat: int = 0  # rows since the last beat
    slope: float = 0.0  # Σ ∂ log⟨p(y|f)⟩/∂log scale over these rows
    rescaled: float = 0.0  # growth of the log scale that the sites have not followed yet
    leader: int = 0  # the expert of largest weight at the last beat
    alarms: int = 0  # drift alarms that were answered
    unlearned: bool = False  # whether drift asks for the model to be learned again
    drift: Drift = field(default_factory=Drift)
    memory: Memory | None = None
    watching: bool = False  # whether to look for drift: not during the warm-up
    quiet: int = 0  # rows that may be read one by one before a discount or beat is due

    @staticmethod
    def begun(half_life: Any, on_drift: Any, follows_noise: bool, memory: Memory | None = None) -> Adaptation:
        """Return the adaptation before any row; half_life is None, a number or "auto", as for estimators."""
        require_one_of("on_drift", on_drift, ("warn", "forget", "reset", "relearn"))
        if on_drift == "relearn" and memory is None:
            raise ParameterError("on_drift='relearn' is for regression; use 'forget' or 'reset'")
        number = isinstance(half_life, int | float | np.number) and not isinstance(half_life, bool)
        if not (half_life is None or half_life == "auto" or (number and half_life > 0)):
            raise ParameterError(f"half_life must be a positive number, 'auto' or None, not {half_life!r}")
        rates = np.array(RATES if half_life == "auto" else [half_life or np.inf], dtype=float)
        zeros = np.zeros(len(rates))
        return Adaptation(rates, on_drift, follows_noise, zeros, zeros, memory=memory)

    @property
    def weights(self) -> np.ndarray:
        """The experts' weights, which sum to one. (E,)"""
        weights = np.exp(self.log_weights - np.max(self.log_weights))
        return weights / np.sum(weights)

    @property
    def to_be_learned(self) -> bool:
        """Whether it is time to learn the model again: enough rows have come after an alarm."""
        return self.unlearned and self.beat == 0 and self.drift.rows >= LEARNED_AFTER

    def steps(self, n: int, times: np.ndarray | None, row: int) -> np.ndarray:
        """Return how much older each of n new rows makes those before it: 1, or by `times` the time since the
        row before; 0 for the first row of the stream. The first new row has the number `row`. (n,)
        """
        if times is None and self.clock is None:
            return np.where(np.arange(n) == 1 - row, 0.0, 1.0)
        if times is None or (self.clock is None and np.any(self.since > 0)):
            raise ParameterError("either all rows of a stream have a time or none; give `time` with each")
        steps = np.diff(times, prepend=times[:1] if self.clock is None else self.clock)
        if np.any(steps < 0) or not np.all(np.isfinite(steps)):
            row = int(np.argmax(~(steps >= 0)))
            raise NonFiniteError(f"row {row} has time {times[row]}, before the row before it; sort the rows")
        self.clock = float(times[-1]) if len(times) else self.clock
        return steps

    def read(
        self, learner: Learner, X: np.ndarray, Y: np.ndarray, steps: np.ndarray, row: int
    ) -> Iterator[tuple[Seen, Likelihood]]:
        """Let the learner read rows X, Y (n, c, p), in pieces that end at the next beat or discount; `row` is
        the first row's number in the stream. Yield each piece's predictions, mixed over the experts, and the
        likelihood they were made with. Stop early when the model is to be learned again.
        """
        learner.open(X, self._for_experts(Y))
        self._judge(learner)
        learner.margin = MARGIN if np.any(np.isfinite(self.half_lives)) else 1.0
        done = 0
        while done < len(X) and not self.to_be_learned:
            ahead = np.cumsum(steps[done : done + BEAT - self.beat] if self._acts else steps[done:])
            due = (self.since[:, None] + ahead) >= self._periods[:, None]  # (E, rows)
            if np.any(due[:, 0]):
                kept = 0.5 ** ((self.since + ahead[0]) / self.half_lives)
                self._discount(learner, np.where(due[:, 0], kept, 1.0))
                self.since = np.where(due[:, 0], -ahead[0], self.since)
                due = (self.since[:, None] + ahead) >= self._periods[:, None]
            later = np.flatnonzero(np.any(due[:, 1:], axis=0))
            n = int(later[0]) + 1 if len(later) else len(ahead)
            seen, likelihood = self._together(learner.advance(n)), learner.likelihood
            self.since, self.beat, now = self.since + ahead[n - 1], self.beat + n, slice(done, done + n)
            self._look(learner, seen, X[now], Y[now], row + done)
            done += n
            yield seen, likelihood
        self.quiet = 0 if self.clock is not None else self._quiet_rows()

    def read_row(self, learner: Learner, X: np.ndarray, Y: np.ndarray, row: int) -> Seen:
        """Read one row, whose number in the stream is `row`, with the learner that read the row before, and
        return its prediction. Only while `quiet` > 0, as no discount or beat is due then.
        """
        learner.open(X, self._for_experts(Y))
        seen = self._together(learner.advance(1))
        self.since, self.beat, self.quiet = self.since + 1.0, self.beat + 1, self.quiet - 1
        self._look(learner, seen, X, Y, row)
        return seen

    def _quiet_rows(self) -> int:
        """Count the rows before the next one at which a discount or a beat is due."""
        rows = min(float(np.min(np.ceil(self._periods - self.since))) - 1.0, MOST_QUIET)
        return int(min(rows, BEAT - self.beat - 1) if self._acts else rows)

    def _for_experts(self, Y: np.ndarray) -> np.ndarray:
        """Repeat the targets of rows for the processes of every expert. (n, E c, p)"""
        return Y if len(self.half_lives) == 1 else np.concatenate([Y] * len(self.half_lives), axis=1)

    @property
    def _periods(self) -> np.ndarray:
        """The rows or time between two discounts: an eighth of each half-life, a quarter for several experts.
        Rows are whole beats where that is more than one, and with several experts always. (E,)
        """
        several = len(self.half_lives) > 1
        steps = (SEVERAL_STEP if several else STEP) * self.half_lives
        beats = np.maximum(np.round(steps / BEAT), 1.0) * BEAT
        return steps if self.clock is not None else np.where(several | (steps > BEAT), beats, steps)

    @property
    def _acts(self) -> bool:
        """Whether a beat may change the model: noise, memory, or an answer to drift."""
        return self.follows_noise or self.memory is not None or self.on_drift != "warn"

    def _look(self, learner: Learner, seen: Seen, X: np.ndarray, Y: np.ndarray, row: int) -> None:
        """Gather the errors of the predictions; at every beat change the noise and answer drift by them."""
        likelihood = learner.likelihood
        if self.watching or self.follows_noise:
            errors = standardised(likelihood, seen, Y)
            if self.watching:
                self.drift = self.drift.after(rows_of(errors), row)
            if self.follows_noise:
                slopes = _scale_slopes(likelihood, Y, seen, errors)
                # added row after row, so that the sum does not depend on how rows come together
                self.slope = float(np.add.accumulate([self.slope, *slopes])[-1])
        if self.memory is not None:
            self.memory = self.memory.with_rows(X, Y[:, 0], seen.variance[:, 0], likelihood, row)
        if self.beat < BEAT and self._acts:
            return
        if self.follows_noise:  # a step of natural gradient on the log scale, whose information is about 2
            slope = self.slope / self.beat
            rows = NOISE_ROWS if abs(slope) < UNUSUAL else NOISE_ROWS_THEN
            step = (1.0 - 0.5 ** (self.beat / rows)) * slope / 2.0
            step = float(np.clip(step, -0.5 if _scale(likelihood) > LEAST_SCALE else 0.0, 0.5))
            learner.change(likelihood.in_units(np.exp(step)))
            self.rescaled += step
            if abs(self.rescaled) > RESCALED:
                self._discount(learner, np.ones(len(self.half_lives)))
        self.beat, self.slope, self.leader = 0, 0.0, int(np.argmax(self.log_weights))
        self._judge(learner)
        if self.drift.alarms > self.alarms:
            self._answer(learner)

    def _judge(self, learner: Learner) -> None:
        """Let the expert that led at the last beat choose the basis function that is removed."""
        each = len(learner.posts) // len(self.half_lives)
        learner.judge(self.leader * each, (self.leader + 1) * each)

    def _answer(self, learner: Learner) -> None:
        """Warn of drift, and do what `on_drift` asks for."""
        self.alarms, last = self.drift.alarms, self.drift.at[-1]
        message = f"the stream has drifted: alarm {self.alarms} at row {last}"
        warnings.warn(message, DriftWarning, stacklevel=9)
        if self.on_drift != "warn":
            kept = FORGOTTEN["reset" if self.on_drift == "reset" else "forget"]
            self._discount(learner, np.full(len(self.half_lives), kept))
            self.memory = None if self.memory is None else self.memory.emptied()
            self.unlearned = self.on_drift == "relearn"

    def _discount(self, learner: Learner, kept: np.ndarray) -> None:
        """Discount each expert's sites to the share `kept` (E,), and by the growth of the noise since."""
        kept, self.rescaled = kept * np.exp(-2.0 * self.rescaled), 0.0
        with blas_for(len(learner.basis)):
            learner.forget(np.repeat(kept, len(learner.posts) // len(kept)).tolist())

    def _together(self, seen: Seen) -> Seen:
        """Mix the experts' predictions row by row, and update the experts' weights after each row."""
        n, E = len(seen.mean), len(self.half_lives)
        if E == 1:
            return seen
        mixed = Seen.nothing(n, seen.mean.shape[1] // E, seen.mean.shape[2])
        self.log_weights = self.log_weights.copy()
        mix(seen, self.log_weights, WEIGHT_MEMORY, LEAST_LOG_WEIGHT, mixed)
        return mixed

    def matched(self, posts: Sequence[Posterior]) -> list[Posterior]:
        """Return processes with the mean and covariance of the experts' mixture, as many as an expert has."""
        E, share = len(self.half_lives), self.weights
        if E == 1:
            return list(posts)
        c, matched = len(posts) // E, []
        for j in range(c):
            ours = posts[j::c]
            w = sum(s * post.w for s, post in zip(share, ours))
            roots = [s**0.5 * np.asarray(post.A).T for s, post in zip(share, ours)]
            apart = [(s / w.shape[1]) ** 0.5 * (post.w - w).T for s, post in zip(share, ours)]
            A = np.ascontiguousarray(triangle(*roots, *apart).T)  # squares would lose half the digits
            matched.append(replace(ours[0], w=w, A=A, online=None))
        return matched

    def to_record(self) -> tuple[Plain, Arrays]:
        """Describe the adaptation: plain data for JSON, and arrays by name."""
        plain = {name: getattr(self, name) for name in RECORDED}
        arrays = {"stream.log_weights": self.log_weights, "stream.since": self.since}
        rows = {} if self.memory is None else self.memory.to_arrays()
        return plain | {"drift": asdict(self.drift)}, arrays | rows

    def restored(self, plain: Plain, arrays: Arrays) -> Adaptation:
        """Return the adaptation that `to_record` described; this one was begun with the same parameters."""
        drift = Drift(**(plain["drift"] | {"at": tuple(plain["drift"]["at"])}))
        values = {name: plain[name] for name in RECORDED}
        for name in ("log_weights", "since"):
            values[name] = array(arrays, f"stream.{name}", 1)
            expect(values[name].shape == self.since.shape, f"stream.{name}", values[name])
        memory = None if self.memory is None else self.memory.restored(arrays)
        return replace(self, **values, drift=drift, memory=memory)


def _scale_slopes(likelihood: Likelihood, Y: np.ndarray, seen: Seen, errors: np.ndarray) -> np.ndarray:
    """Return ∂log⟨p(y|f)⟩/∂log scale of each row, a mean over its outputs; for Gaussian noise estimate it by
    the share of errors (n, c, p) outside the 95 % band. (n,)
    """
    if isinstance(likelihood, Gaussian):
        missed = np.count_nonzero(np.abs(errors) > WITHIN, axis=(1, 2)) - MISSED * errors[0].size
        return missed * 2.0 / MISSED_SLOPE / Y.shape[2]
    name = _scale_name(likelihood)
    variance = seen.variance[:, :, None] + 0.0 * seen.mean
    slopes = likelihood.parameter_gradient(Y.ravel(), seen.mean.ravel(), variance.ravel())[name]
    power = 2.0 if name == "variance" else 1.0
    return np.sum(slopes.reshape(len(Y), -1), axis=1) * power * getattr(likelihood, name) / Y.shape[2]


def _scale_name(likelihood: Likelihood) -> str:
    return "variance" if "variance" in likelihood.names else "scale"


def _scale(likelihood: Likelihood) -> float:
    value = getattr(likelihood, _scale_name(likelihood))
    return float(np.sqrt(value)) if _scale_name(likelihood) == "variance" else float(value)


@compiled(fastmath=FAST)
def mix(seen: Seen, log_weights: np.ndarray, memory: float, least: float, mixed: Seen) -> None:
    """Write into `mixed` the mean, variance and log density of each row under the mixture of E experts;
    `seen` has the c processes of each, expert after expert. After each row the log weights (E,) gain its log
    density, fade by the factor `memory`, and become relative to the largest, not below `least`.
    """
    E = len(log_weights)
    n, c, p = mixed.mean.shape
    share = np.empty(E)
    for i in range(n):
        share[:] = np.exp(log_weights - np.max(log_weights))
        share /= np.sum(share)
        for j in range(c):
            each = seen.log_density[i, j::c]
            top, density, variance = np.max(each), 0.0, 0.0
            for e in range(E):
                density += share[e] * np.exp(each[e] - top)
                variance += share[e] * seen.variance[i, e * c + j]
            for o in range(p):
                mean = 0.0
                for e in range(E):
                    mean += share[e] * seen.mean[i, e * c + j, o]
                for e in range(E):
                    variance += share[e] * (seen.mean[i, e * c + j, o] - mean) ** 2 / p
                mixed.mean[i, j, o] = mean
            mixed.variance[i, j], mixed.log_density[i, j] = variance, np.log(density) + top
        for e in range(E):
            log_weights[e] = memory * (log_weights[e] + np.sum(seen.log_density[i, e * c : (e + 1) * c]))
        log_weights[:] = np.maximum(log_weights - np.max(log_weights), least)
