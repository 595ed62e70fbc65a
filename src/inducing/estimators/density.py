"""`GPDensity`: a density with error bars, by `beside.squared`, for scikit-learn. [004 §5.3]"""

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ..beside.squared import Estimate, Fourier, OrnsteinUhlenbeck, Prior, estimate, left_out, mass, moments
from ..errors import ModelFileError, ParameterError, ShapeError, require_one_of
from ..files.records import Arrays, Plain, number
from ..inference import selection
from ..model.kernels import Trigonometric
from ..model.posterior import Posterior
from ..model.problem import as_inputs
from ..progress import Bars
from .base import Estimator, generator
from .preparation import checked_weights
from .watching import with_callbacks

KERNELS = ("trigonometric", "ornstein-uhlenbeck")
GIVE_UP = 4  # orders without more evidence, after which the search ends
LENGTHSCALES = np.geomspace(0.02, 0.64, 6)  # in sides of the box, tried if none is given
PROPOSALS = 1 << 14  # points that rejection sampling tries at once
LEAST_VOLUME = 1e-290  # of the box, by which densities are divided


@dataclass(eq=False, repr=False)
class GPDensity(DensityMixin, Estimator):
    """The density f²/∫f² of a Gaussian process f, by expectation propagation.

    The rows lie in a box: `bounds`, or their range and a margin. Outside it the density is 0 and its
    logarithm -inf. The trigonometric kernel is periodic: opposite sides of the box are the same place, which
    is right for angles and times of day with `bounds`, and harmless if the margin keeps the sides empty.

    Parameters
    ----------
    kernel : "trigonometric": Fourier series up to `order` along each input, for densities that are smooth on
        that scale. "ornstein-uhlenbeck": rough densities of one input.
    order : order of the series, the same along each side of the box, so there is no ard; None takes the one
        with the largest evidence.
    lengthscale : of the Ornstein-Uhlenbeck process, in units of X; None takes the one of six under which
        left-out rows are most likely.
    bounds : None, or the box as pairs (low, high), one for each input.
    padding : width of the margin on each side, as a share of the range.
    max_functions : limit of (2 order + 1)^d, the dimension of the space, in the search for an order.
    max_iter : limit of sweeps.
    tol : sweeps end when one moves less than this share of the mass from one place to another.
    damping : in (0, 1], how far a site goes towards its new value; halved automatically if needed.

    Attributes
    ----------
    posterior_ : the Posterior of f on the unit box.
    kernel_, basis_size_, n_features_in_, feature_names_in_ (from data frames).
    order_ or lengthscale_ : the one used. lam_ : λ of [004 eq. 5.25], 1 for "ornstein-uhlenbeck".
    mass_ : ∫E f² over the unit box. low_, span_ : (d,), the box. n_iter_, converged_ : of the sweeps.
    log_evidence_ : log probability of X under the prior, in its own units; None for "ornstein-uhlenbeck".
    scores_ : log evidence of every order tried, or log density of left-out rows of every lengthscale.
    """

    kernel: str = "trigonometric"
    order: int | None = None
    _: KW_ONLY
    lengthscale: float | None = None
    bounds: Any = None
    padding: float = 0.2
    max_functions: int = 500
    max_iter: int = 100
    tol: float = 1e-3
    damping: float = 0.5

    _units = ("low", "span")

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn the density of the rows X (n, d); a row of weight w counts w times, one of weight 0 not at
        all. The order of the rows does not matter: equal ones are merged and then shuffled by a fixed seed.
        """
        X = as_inputs(self._validated(X, reset=True, ensure_min_samples=2))
        require_one_of("kernel", self.kernel, KERNELS)
        weights = checked_weights(sample_weight, X)
        X, weights = selection.merge_repeats(X[weights > 0], weights[weights > 0])
        self.low_, self.span_ = self._box(X)
        if not LEAST_VOLUME <= np.prod(self.span_) < np.inf:
            raise ParameterError(f"a box of sides {self.span_} has too small or large a volume; rescale X")
        shuffled = np.random.default_rng(0).permutation(len(X))
        U, times = ((X - self.low_) / self.span_)[shuffled], weights[shuffled]
        if np.any((U < 0.0) | (U > 1.0)):
            row = X[shuffled][np.any((U < 0.0) | (U > 1.0), axis=1)][0]
            raise ParameterError(
                f"row {row} is outside {self.low_} to {self.low_ + self.span_}; widen bounds"
            )
        for name in ("order_", "lengthscale_", "metadata_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        with Bars() as bars:
            best, scores = self._best(U, times, bars)
        if not best.converged:
            text = f"no fixed point within max_iter={self.max_iter} sweeps; try damping below {self.damping}"
            warnings.warn(text, ConvergenceWarning, stacklevel=2)
        self.posterior_ = replace(best.posterior, sites=None)  # the sites belong to the rows
        self._kernel, self.basis_size_ = best.posterior.kernel, len(best.posterior)
        self.mass_, self.lam_ = best.mass, best.lam
        self.n_iter_, self.converged_ = best.n_sweeps, best.converged
        units = float(np.sum(weights) * np.sum(np.log(self.span_)))
        self.log_evidence_ = None if best.log_evidence is None else best.log_evidence - units
        self.scores_ = {key: value - units for key, value in scores.items()}
        return self

    def pdf(self, X: Any, return_std: bool = False) -> Any:
        """Return the expected density at each row, on request with its std. (n,) each [004 eq. 5.24]"""
        check_is_fitted(self)
        U = (as_inputs(self._validated(X, reset=False)) - self.low_) / self.span_
        inside = np.all((U >= 0.0) & (U <= 1.0), axis=1)
        value, deviation = np.zeros(len(U)), np.zeros(len(U))
        if np.any(inside):
            value[inside], deviation[inside] = moments(self.posterior_, U[inside])
        unit = self.mass_ * float(np.prod(self.span_))
        return (value / unit, deviation / unit) if return_std else value / unit

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log density at each row of X; -inf outside the box. (n,)"""
        with np.errstate(divide="ignore"):
            return np.log(self.pdf(X))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the total log density of the rows of X."""
        return float(np.sum(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw from the expected density, by rejection from the uniform one. (n_samples, d)"""
        check_is_fitted(self)
        if isinstance(n_samples, bool) or int(n_samples) != n_samples or n_samples < 0:
            raise ParameterError(f"n_samples must be a whole number of at least 0, but is {n_samples}")
        rng, bound, d = generator(random_state), self._bound(), self.n_features_in_
        drawn = [np.empty((0, d))]
        while sum(map(len, drawn)) < n_samples:
            U = rng.random((PROPOSALS, d))
            drawn.append(U[rng.random(PROPOSALS) * bound < moments(self.posterior_, U)[0]])
        return self.low_ + self.span_ * np.concatenate(drawn)[: int(n_samples)]

    def _more_to_record(self) -> tuple[Plain, Arrays]:
        scores = [[key, value if np.isfinite(value) else None] for key, value in self.scores_.items()]
        plain = {
            "lam": self.lam_,
            "converged": bool(self.converged_),
            "log_evidence_of_x": self.log_evidence_,
            "smoothness": getattr(self, "lengthscale_", None),
            "scores": scores,
        }
        return plain, {}

    def _restore(self, plain: Plain, arrays: Arrays, posterior: Posterior) -> None:
        self.posterior_, self.mass_ = posterior, mass(posterior)
        self.lam_, self.converged_ = float(plain["lam"]), bool(plain["converged"])
        self.log_evidence_ = number(plain["log_evidence_of_x"])
        self.scores_ = {key: -np.inf if value is None else float(value) for key, value in plain["scores"]}
        if isinstance(posterior.kernel, Trigonometric):
            self.order_ = posterior.kernel.order
        else:
            self.lengthscale_ = float(plain["smoothness"])
        if not (self.mass_ > 0.0 and np.prod(self.span_) >= LEAST_VOLUME):
            raise ModelFileError(f"its density has the mass {self.mass_} in a box of sides {self.span_}")

    def _box(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the box's lower corner and its sides, from `bounds` or the range of X. (d,) each"""
        d = X.shape[1]
        if self.bounds is not None:
            try:
                bounds = np.array(self.bounds, dtype=float)
            except (TypeError, ValueError):
                bounds = np.empty(0)
            bounds = bounds[None] if bounds.shape == (2,) and d == 1 else bounds
            right = bounds.shape == (d, 2) and np.all(np.isfinite(bounds))
            if not right or not np.all(bounds[:, 0] < bounds[:, 1]):
                raise ParameterError(f"bounds must be {d} pairs low < high, but are {self.bounds}")
            return bounds[:, 0], bounds[:, 1] - bounds[:, 0]
        if not self.padding >= 0.0 or not np.isfinite(self.padding):
            raise ParameterError(f"padding, a share of the range, must not be negative, not {self.padding}")
        low, width = X.min(axis=0), np.ptp(X, axis=0)
        if np.any(width == 0.0):
            column = int(np.argmin(width))
            raise ParameterError(f"column {column} of X is constant, {low[column]:g}; drop it")
        return low - self.padding * width, (1.0 + 2.0 * self.padding) * width

    def _best(self, U: np.ndarray, times: np.ndarray, bars: Bars) -> tuple[Estimate, dict[Any, float]]:
        """Return the estimate with the given order or lengthscale, or the best score; and all scores."""
        best, since = None, 0
        scores: dict[Any, float] = {}
        for name, prior in self._priors(U.shape[1]):
            bars.show("density", f"density: smoothness {name:g}, {len(scores)} tried before")
            hold = isinstance(prior, OrnsteinUhlenbeck)
            rule = {"convergence": self.tol, "damping": self.damping}
            trial = estimate(prior, U, times, limit=self.max_iter, hold=hold, **rule)
            score = _score(trial, U, times)
            since += 1
            if best is None or score > max(scores.values()):
                best, chosen, since = trial, name, 0
            scores[name] = score
            if since == GIVE_UP and isinstance(prior, Fourier):
                break
        assert best is not None
        setattr(self, "order_" if isinstance(best.prior, Fourier) else "lengthscale_", chosen)
        return best, scores

    def _priors(self, d: int) -> list[tuple[Any, Prior]]:
        """Return the orders or lengthscales to try, each with its prior."""
        if self.kernel == "ornstein-uhlenbeck":
            if d != 1:
                raise ShapeError(f"'ornstein-uhlenbeck' is for one input, but X has {d}; use 'trigonometric'")
            unit = self.span_[0]
            given = LENGTHSCALES * unit if self.lengthscale is None else [self.lengthscale]
            return [(float(value), OrnsteinUhlenbeck(value / unit)) for value in given]
        if self.order is not None:
            return [(self.order, Fourier(self.order, d))]
        most = int((self.max_functions ** (1.0 / d) + 1e-9 - 1.0) / 2.0)
        if most < 1:
            few = f"max_functions={self.max_functions}; choose fewer inputs"
            raise ParameterError(f"order 1 has {3**d} functions of {d} inputs, more than {few}")
        return [(order, Fourier(order, d)) for order in range(1, most + 1)]

    def _bound(self) -> float:
        """Return an upper bound of E f².

        A trigonometric polynomial of degree g is at most 1/cos(πg/L) times its maximum on L > 2g equidistant
        points, along each input. For the Ornstein-Uhlenbeck process E f² is smooth except at the basis, where
        its peaks are.
        """
        if not isinstance(self._kernel, Trigonometric):
            Z = self.posterior_.basis.parameters["Z"]
            grid = np.concatenate([np.linspace(0.0, 1.0, 4097)[:, None], Z])
            return 1.01 * float(np.max(moments(self.posterior_, grid)[0]))
        degree, d = 2 * self._kernel.order, self.n_features_in_
        fine = 4 if d < 3 else 2  # points for each half wave
        axis = np.arange(2 * fine * degree) / (2 * fine * degree)
        grid = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
        return float(np.max(moments(self.posterior_, grid)[0])) / np.cos(0.5 * np.pi / fine) ** d


def _score(trial: Estimate, U: np.ndarray, times: np.ndarray) -> float:
    """Return the log evidence, or without one the log density of left-out rows; -inf if it is not known."""
    if isinstance(trial.prior, Fourier):
        return -np.inf if trial.log_evidence is None else trial.log_evidence
    seen = left_out(trial.posterior, U) / trial.mass
    return float(times @ np.log(seen)) if np.all(seen > 0.0) else -np.inf
