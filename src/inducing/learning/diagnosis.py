"""Figures about a fit: how close its process is to the exact one, and what would bring it closer.

Whatever the row, Q = KfuKuu⁻¹Kuf ⪯ K, so with R = K - Q the exact GP's log evidence at the same
hyperparameters lies between

    lower   log N(y | 0, Q + Σ) - ½ tr(Σ⁻¹R)                           VFE's bound [Titsias 2009]
    upper   -½ [n log 2π + log|Q + Σ| + yᵀ(Q + Σ + tr(R) I)⁻¹y]        [Titsias 2014], [Burt et al. 2020]

since |K + Σ| ≥ |Q + Σ| and K + Σ ⪯ Q + Σ + tr(R) I. Both are passes of O(nm²) over chunks of rows, and
together cost about as much as one gradient.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any, Self

import numpy as np

from ..engine import evidence
from ..errors import ParameterError
from ..inference.left_out import LeftOut
from ..inference.regression import problem_of
from ..inference.selection import greedy_variance
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.kernels.changed import OfFeatures, Projected
from ..model.kernels.composite import Composite
from ..model.likelihoods import Likelihood
from ..model.posterior import Posterior
from ..model.problem import DEFAULT_JITTER, Problem, as_noise
from ..model.table import DTC, VFE
from ..numerics.arrays import namespace, to_numpy
from ..numerics.workers import row_slices
from ..sources.columns import listing
from ..sources.source import Source
from .objective import moved, plainly, tempered
from .packing import Parameters
from .stages import Fit, NeighbourGain

SLACK = 0.1  # of the noise: what a basis may leave of the prior variance, on average, and be large enough
PRINTED_SURPRISES = 5  # surprising rows that are printed
SIZING_ROWS = 4000  # rows looked at when a size is suggested
AS_STD = 1.4826  # a Gaussian's standard deviation over the median of its absolute values
FAR_OFF_ROWS = 10.0  # times the usual error, from which on a row may be an outlier
UNLIKE_PEERS, PEERS = 7.0, 15  # times that of so many rows with deviations like its own
MOST_OUTLIERS, MANY_OUTLIERS = (
    50,
    0.02,
)  # that are kept; the share of rows at which noise may differ from row to row
ROWS_OF_AN_INPUT = 10  # rows for each input, below which left-out rows promise too much
AS_PROMISED = "as they should"
PILED = 0.05  # the share of targets at their least or greatest value that is named


class Report:
    """Base of what is known of a fit; print it. `verdict` is how well rows predict each other, in a sentence
    or two, empty where they were not asked; `advice` a sentence for each thing worth knowing; `figures` are
    numbers by name, and `surprises` rows that are hard to believe, the number of each first.
    """

    def renumbered(self: Any, rows: Any) -> Any:
        """The report with row i called rows[i]."""
        return replace(self, surprises=tuple((int(rows[row]), *rest) for row, *rest in self.surprises))

    def __str__(self: Any) -> str:
        figures, sentences = self.figures, [sentence for sentence in (self.verdict, *self.advice) if sentence]
        width = max(map(len, figures))
        lines = [f"{name:<{width}}  {value}" for name, value in figures.items()]
        return "\n".join([*(f"- {sentence}" for sentence in sentences), *lines])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def to_json(self: Any) -> dict[str, Any]:
        """The figures as plain data, for a model file."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        """The report of such plain data."""
        return cls(**{name: tupled(value) for name, value in plain.items()})


def tupled(value: Any) -> Any:
    """A list of lists, as JSON has them, as tuples; anything else as it is."""
    return tuple(map(tupled, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class Diagnosis(Report):
    """Figures about a fit, and advice in sentences; print it for a table."""

    rows: int
    functions: int  # m
    evidence: float | None  # log q(y) of the row that was fitted
    lower: float  # of the exact GP's log evidence
    upper: float
    residual: float  # tr(K - Q) / tr K, what the basis leaves of the prior variance
    residual_to_noise: float  # tr(K - Q) / tr Σ
    effective: float | None  # tr(I - B⁻¹), how many functions' worth of data speak; None for an exact GP
    jitter: float  # relative, as used
    at_bounds: tuple[str, ...]  # parameters that ended where they may go no further
    suggested: int | None  # a size of the basis that would do; None where it is beyond what was tried
    tried: int
    converged: bool
    gain: NeighbourGain | None = None  # what held-out rows gain from neighbours
    jumps: tuple[float, ...] = ()  # of the log evidence, each time that neighbours were found anew
    surprises: tuple[tuple[int, float, float, float], ...] = ()  # row, y, and mean and std by the other rows
    explained: tuple[float, ...] = ()  # of each output's variance, by the other rows, where those were asked
    inside: float | None = None  # the share of rows in the intervals of 95 % of all others
    piled: tuple[
        tuple[str, float, float], ...
    ] = ()  # "least" or "greatest" target, and its share of the rows
    outliers: tuple[int, ...] = ()  # rows far beyond what is usual, the furthest first
    inputs: int = 0  # that vary

    @property
    def gap(self) -> float:
        """Nats per row between the two bounds: what is not known of the exact GP's evidence."""
        return (self.upper - self.lower) / self.rows

    @property
    def excess(self) -> float:
        """Nats per row by which the evidence exceeds the exact GP's greatest; at most 0 where it does not."""
        return -np.inf if self.evidence is None else (self.evidence - self.upper) / self.rows

    @property
    def verdict(self) -> str:
        if self.inside is None:
            return ""
        share, verdict = ", ".join(map(percent, self.explained)), as_promised(self.inside, self.rows)
        if verdict == AS_PROMISED and self.rows < ROWS_OF_AN_INPUT * self.inputs:
            verdict = f"but new rows less often: {self.rows} rows of {self.inputs} inputs promise too much"
        return (
            f"Left out in turn, rows are predicted by the others: that explains {share} of the variance, and "
            f"{percent(self.inside)} of the values lie in intervals of 95 %, {verdict}."
        )

    @property
    def advice(self) -> tuple[str, ...]:
        out = []
        if self.excess > 1e-6:
            out.append(
                f"The evidence is {self.excess:.3g} nats per row above the exact GP's with the same "
                "hyperparameters: either the noise depends on the input, or the basis explains noise; "
                "compare held-out rows with approximation='vfe'."
            )
        if self.gain is None:  # neighbours see what is left
            out += advice_on_size(self.residual_to_noise, self.functions, self.suggested, self.tried)
        if self.jitter > 10 * DEFAULT_JITTER:
            grew = f"Jitter grew to {self.jitter:.1g}"
            out.append(f"{grew}: some basis functions are nearly copies of others; use fewer.")
        if any(name.startswith("noise at its least") for name in self.at_bounds):
            out.append("The noise ended at its floor: the data have next to none, or the basis explains it.")
        if any(name.startswith("noise at its greatest") for name in self.at_bounds):
            out.append("The noise ended at its greatest value: the inputs explain nothing of the targets.")
        for end, value, share in self.piled:
            out.append(
                f"{percent(share)} of the targets are {value:.6g}, the {end} of all. Gaussian noise does not "
                "expect that: rare rows that differ may lie many deviations away. For counts "
                "likelihood='negativebinomial' fits better, for values cut off at a limit 'censoredgaussian'."
            )
        if self.outliers and not self.piled:
            listed = f"row{'s' * (len(self.outliers) > 1)} {listing(self.outliers)}"
            many = len(self.outliers) > MANY_OUTLIERS * self.rows
            out.append(
                f"More than ten times the usual error from what the others say: {listed}. With Gaussian "
                "noise such rows spoil the predictions of others: check them, or fit likelihood='studentt'"
                + many * ", or noise='learned' where the noise depends on the inputs"
                + "."
            )
        if not self.converged:
            out.append("The optimiser was still gaining when it stopped: more iterations may help.")
        return tuple(out)

    def shifted(self, nats: float) -> "Diagnosis":
        """The figures in other units of y, in which every log density is greater by `nats`."""
        evidence = None if self.evidence is None else self.evidence + nats
        return replace(self, evidence=evidence, lower=self.lower + nats, upper=self.upper + nats)

    @property
    def figures(self) -> dict[str, str]:
        evidence = "not known" if self.evidence is None else f"{self.evidence:.6g}"
        if self.effective is None:
            rows = {"different rows": f"{self.rows}", "exact log evidence": evidence}
        else:
            left = f"{self.residual:.2g} of it, {self.residual_to_noise:.2g} times the noise"
            between = f"{self.lower:.6g} and {self.upper:.6g} ({self.gap:.2g} nats per row)"
            rows = {
                "different rows, basis": f"{self.rows}, {self.functions} (effective {self.effective:.1f})",
                "exact log evidence between": between,
                "log evidence of the fit": evidence,
                "prior variance left": left,
                "suggested basis functions": f"{self.suggested or f'more than {self.tried}'}",
                "jitter": f"{self.jitter:.1g}",
            }
        if self.gain is not None:
            rows[f"{self.gain.rows} held-out rows"] = str(self.gain)
        if self.jumps:
            jumps = ", ".join(f"{jump:+.3g}" for jump in self.jumps)
            rows["neighbours found anew"] = f"evidence {jumps} nats"
        rows["at a bound"] = listing(self.at_bounds, quote=False, sign="; ") or "nothing"
        for row, y, mean, std in self.surprises[:PRINTED_SURPRISES]:
            rows[f"surprising: row {row}"] = f"{y:.4g}, where the others say {mean:.4g} ± {2 * std:.2g}"
        return rows

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        gain = plain["gain"] and NeighbourGain(**{name: tupled(v) for name, v in plain["gain"].items()})
        return super().from_json(plain | {"gain": gain})


def advice_on_size(left: float, functions: int, suggested: int | None, tried: int) -> list[str]:
    """A sentence on a basis that leaves so much of the noise unexplained, if another size would do better."""
    if left > SLACK and (suggested is None or suggested > functions):
        size = f"more than {tried}" if suggested is None else f"about {suggested}"
        return [
            f"The basis leaves {left:.3g} times the noise of the prior variance unexplained: {size} basis "
            "functions would bring that below a tenth."
        ]
    if suggested is not None and 2 * suggested <= functions:
        return [f"About {suggested} basis functions would do as well as these {functions}, and be faster."]
    return []


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * max(share, 0.0):.{digits}f} %"


def as_promised(inside: float, rows: int) -> str:
    """Say in words whether this share of rows is what intervals of 95 % promise, up to chance."""
    if abs(inside - 0.95) < max(0.02, 2.0 * np.sqrt(0.95 * 0.05 / rows)):
        return AS_PROMISED
    return "too few: it is less sure than it says" if inside < 0.95 else "more than said"


def piled_targets(y: np.ndarray) -> tuple[tuple[str, float, float], ...]:
    """The least and the greatest of y (n,) with their shares of the rows, where many rows have it."""
    ends = ("least", float(np.min(y))), ("greatest", float(np.max(y)))
    shares = [(end, value, float(np.mean(y == value))) for end, value in ends]
    several = len(np.unique(y)) > 2  # else the targets are two classes
    return tuple(each for each in shares if several and each[2] >= PILED and np.sum(y == each[1]) > 2)


def outliers_of(left: LeftOut) -> np.ndarray:
    """The rows (k,) whose left-out error, the furthest first, is more than ten times the usual one, and in
    standard deviations more than seven times that of the 15 rows with the most similar deviations. An outlier
    widens all deviations, or with learned noise its own, and then those near it are far too wide.
    """
    error, n = np.abs(left.error), len(left.error)
    z, order, width = error / left.std, np.argsort(left.std, kind="stable"), min(PEERS, n)
    first = np.clip(np.arange(n) - width // 2, 0, n - width)
    usual = np.empty(n)
    usual[order] = np.median(z[order][first[:, None] + np.arange(width)], axis=1)
    far = (
        (error > FAR_OFF_ROWS * AS_STD * np.median(error))
        & (z > UNLIKE_PEERS * AS_STD * usual)
        & (np.median(error) > 0)
    )
    return np.flatnonzero(far)[np.argsort(-error[far], kind="stable")]


def diagnose(fit: Fit, X: Any, y: Any, *, weights: Any = None, rng: Any = 0) -> Diagnosis:
    """Figures and advice about a fit, from the data it was fitted to.

    The size suggested is the least at which greedily chosen rows (`selection.greedy_variance`) leave tr(K -
    Q) ≤ tr(Σ)/10, by the fitted kernel and noise; up to 2m are tried, among 4000 rows. For an exact GP the
    bounds are its evidence, and only that is printed.
    """
    if isinstance(X, Source):
        raise ParameterError("a diagnosis needs rows in memory, and X is a source; give a sample of its rows")
    P = problem_of(fit.kernel, fit.basis, "vfe", fit.noise, X, y, mean=fit.mean, weights=weights)
    return diagnosis_of(fit, P, rng)


def diagnosis_of(
    fit: Fit, P: Problem, rng: Any = 0, noise_of_f: tuple[Posterior | None, float] = (None, 0.0)
) -> Diagnosis:
    """`diagnose` from the checked problem that was fitted; its parameters and its row do not matter. Noise by
    row, by level, of gaps, or of a process at a temperature is taken as it is.
    """
    if isinstance(fit.noise, Likelihood):
        raise ParameterError(f"a diagnosis needs Gaussian noise, not {fit.noise}")
    predictor = fit.posterior
    posterior = getattr(predictor, "pitc", getattr(predictor, "posterior", predictor))
    jitter = getattr(posterior, "jitter", DEFAULT_JITTER)
    P = replace(moved(plainly(P, VFE), Parameters(fit.kernel, fit.basis, fit.noise, fit.mean)), jitter=jitter)
    if P.noise_model is not None:
        P = replace(P, noise_model=None, one_noise=False)
    P = tempered(P, *noise_of_f)
    trace, noise = _prior_trace(P), float(namespace(P.X).sum(P.noise / P.weight(slice(None))))
    exact = getattr(posterior, "A", None) is None  # by a factor, or by conjugate gradients
    if exact:
        assert posterior.log_evidence is not None
        lower = upper = posterior.log_evidence
        left, effective = 0.0, None
    else:
        lower, upper, left, effective = _bounds(P, trace)
    size, tried = (len(fit.basis), len(fit.basis)) if exact else suggested_size(P, noise, len(fit.basis), rng)
    return Diagnosis(
        rows=P.n,
        functions=len(fit.basis),
        evidence=posterior.log_evidence,
        lower=lower,
        upper=upper,
        residual=left / trace,
        residual_to_noise=left / noise,
        effective=effective,
        jitter=jitter,
        at_bounds=fit.at_bounds,
        suggested=size,
        tried=tried,
        converged=fit.converged,
        gain=fit.gain,
        jumps=fit.jumps,
    )


def relevance(kernel: Kernel, basis: Basis) -> np.ndarray:
    """The relevance of each input: one over its shortest lengthscale, in the model's units; 0 where it is
    constant or no part of the kernel looks at it. (d,)
    """
    Z = to_numpy(next(iter(basis.parameters.values())))  # (m, d)
    found = [np.max(reach, axis=0, initial=0.0) for reach in _reaches(kernel, np.eye(Z.shape[1]))]
    return np.where(np.ptp(Z, axis=0) > 0, np.max(found, axis=0, initial=0.0), 0.0)


def _reaches(kernel: Kernel, slopes: np.ndarray) -> Iterator[np.ndarray]:
    """Yield, for each part with lengthscales, how fast its inputs move with those of the model, over their
    lengthscales (g, d); `slopes` (g, d) are of the kernel's own inputs.
    """
    seen = slopes if kernel.columns is None else slopes[list(kernel.columns)]
    if isinstance(kernel, OfFeatures):  # its features come behind the inputs
        yield from _reaches(kernel.kernel, np.vstack([seen, seen[kernel.owners]]))
    elif isinstance(kernel, Projected):
        yield from _reaches(kernel.kernel, np.abs(kernel.matrix) @ seen)
    elif isinstance(kernel, Composite):
        for part in kernel.parts:
            yield from _reaches(part, seen)
    elif (lengthscale := getattr(kernel, "lengthscale", None)) is not None:
        lengths = np.reshape(lengthscale, (-1, 1))
        yield (
            seen if np.ndim(lengthscale) == 0 else seen[: len(lengths)]
        ) / lengths  # then those of averages


def mean_residual(P: Problem) -> float:
    """tr(K - Q)/n: what the basis of a problem leaves of the prior variance at its rows, on average."""
    noise = as_noise(1.0, P.X)[0]
    P = replace(plainly(P, DTC), likelihood=None, noise=noise, one_noise=True, weights=None)
    P = replace(P, jitter=DEFAULT_JITTER)
    return max(_prior_trace(P) - _explained(P, evidence.factorise(P)), 0.0) / P.n


def _prior_trace(P: Problem) -> float:
    return float(sum(float(namespace(P.X).sum(P.kernel.diagonal(P.X[s]))) for s in row_slices(P.n, 1 << 16)))


def _bounds(P: Problem, trace: float) -> tuple[float, float, float, float]:
    """The two bounds, tr R, and tr(I - B⁻¹)."""
    xp = namespace(P.X)
    F = evidence.factorise(P)
    lower = evidence.log_evidence(P, F)
    left = max(trace - _explained(P, F), 0.0)  # R ⪰ 0: below zero is rounding
    logs = float(xp.sum(P.weight(slice(None)) * xp.log(2.0 * np.pi * P.noise)))
    logs -= 2.0 * float(xp.sum(xp.log(xp.linalg.diagonal(F.LBinv))))  # log|B|
    wide = replace(P, row=DTC, noise=P.noise / P.weight(slice(None)) + left, weights=None, one_noise=False)
    G = evidence.factorise(wide)
    # yᵀ(… + tr(R) I)⁻¹y
    squares = float(xp.sum(G.w * G.w)) - 2.0 * (evidence.log_evidence(wide, G) - float(G.base))
    return lower, -0.5 * (P.p * logs + squares), left, len(P.basis) - float(xp.sum(F.LBinv * F.LBinv))


def _explained(P: Problem, F: evidence.Factors) -> float:
    """tr Q = tr ΦΦᵀ; where all rows have one noise, the statistics of the evidence hold it."""
    xp, m = namespace(P.X), len(P.basis)
    if P.uniform:
        return float(P.noise[0]) * (float(xp.linalg.trace(F.B)) - m)
    ones = evidence.factorise(replace(P, row=DTC, noise=0.0 * P.noise + 1.0, weights=None, one_noise=True))
    return float(xp.linalg.trace(ones.B)) - m


def suggested_size(P: Problem, noise: float, m: int, rng: Any) -> tuple[int | None, int]:
    """The number of greedily chosen rows that leave tr(K - Q) ≤ SLACK tr Σ, or None; and the number tried."""
    rows = np.sort(np.random.default_rng(rng).permutation(P.n)[:SIZING_ROWS])
    X = to_numpy(P.X[rows])
    most = min(2 * m, len(X))
    share = SLACK * noise / P.n / float(np.mean(P.kernel.diagonal(X)))
    if share >= 1.0:
        return 1, most
    chosen = len(greedy_variance(X, most, rng, kernel=P.kernel, threshold=share))
    return (chosen if chosen < most else None), most
