"""Candidates for a kernel: learned by exact GPs on a few rows, judged by rows that the others predict.

Rows judge, and not the evidence: under a model that is wrong, as Gaussian noise often is, the evidence goes
on rising while predictions get worse [Rasmussen and Williams 2006, §5.4.2].
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import get_ident

import numpy as np

from ..errors import FactorisationError
from ..inference.left_out import LeftOut, exact_left_out_of, left_out_of
from ..model.kernels.base import Kernel
from ..model.kernels.changed import Levels, Warped
from ..model.kernels.composite import Sum
from ..model.kernels.dot import Linear
from ..model.kernels.stationary import Matern52, RationalQuadratic, Stationary
from ..model.likelihoods import Likelihood
from ..numerics.arrays import is_numpy, to_numpy
from ..numerics.workers import side_by_side
from ..progress import reports_elsewhere
from .objective import parameters_of, varied
from .packing import Parameters
from .settings import Alike, LogNormal
from .stages import Outcome, Stage
from .starts import LEAST_GAIN, times

IN_THIRDS = 1_000  # below which each group of rows is judged with parameters of the others
THIRDS = 3  # such groups
COMPARED_ROWS = 350  # of more rows, that each kernel is learned from; those up to IN_THIRDS judge
KERNEL_ITERATIONS = 40  # of each kernel there
CANDIDATE_WINDOW = 5  # iterations that end a climb if they gain next to nothing
LEAST_ROWS = 10  # that can be parted at all
LEVELS_ALIKE, LEVEL_SIGMA = 10, 0.3  # of a category: more are alike, up to that
SHORTER_START = 0.2  # times the lengthscales given: a second start, for functions that vary faster
PRIOR_SIGMA = 1.5  # of a lengthscale's logarithm: a factor of 20 either way is two of them
LAST_SIGMA_ABOVE = 4.0  # the same in the last climb of few rows, above the median: ℓ = ∞ has no effect
TERM_SHARE = 0.1  # of the noise: the variance that a linear term starts with, and that curves must keep
NOISE_SHARE = 0.1  # of the first kernel's variance: what counts as noise under a likelihood
MOST_CURVES = 30  # inputs that may have a curve each
LEVEL_COUNTS = range(3, 13)  # values of a column that may be levels
LEVELS_GAIN = 0.05  # nats that levels must gain
LONG_TAILED = 6.0  # the kurtosis of a column from which it may be warped: 3 is normal, 9 exponential
MUCH_LESS = 0.9  # of the least error of others: the error of warped inputs that is worth them
MOST_HATS = 60  # of all columns together
BEHIND = 0.1  # of the error, and nats: a candidate as far behind after one group is not learned further
SAME = 1e-3  # of the error, and nats: candidates as near as that are one
CLOSE = 0.02  # of the least error: candidates as near as that are chosen by log density


StartsAndPriors = tuple[Sequence[Parameters], Mapping[str, LogNormal]]  # starts, and the priors they have
Climb = tuple[Stage, Parameters, Mapping[str, LogNormal]]
Hopeless = Callable[[Sequence[int], Sequence[Outcome]], Sequence[bool]]  # of which was asked, and its end


@dataclass(frozen=True)
class Trial:
    """One candidate: its root mean squared error and mean log density on rows it did not learn from."""

    name: str
    rmse: float
    log_density: float
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}: RMSE {self.rmse:.4g}, log density {self.log_density:.4g}, {self.seconds:.1f} s"


def best_of(trials: Sequence[Trial], aim: str = "both") -> int:
    """The index of the trial to take: for "both" the likeliest of those within 2 % of the least error."""
    rmse = np.array([trial.rmse for trial in trials])
    density = np.array([trial.log_density for trial in trials])
    if aim == "rmse":
        return int(np.argmin(rmse))
    close = rmse <= (1.0 + CLOSE) * np.min(rmse) if aim == "both" else np.ones(len(trials), dtype=bool)
    return int(np.argmax(np.where(close, density, -np.inf)))


@dataclass(frozen=True, eq=False)
class Candidate:
    """A kernel to be learned: from where, with which other parameters, under which priors. One on trial must
    be likelier and err less than what `beats` gives, log density and error, of those before it.
    """

    name: str
    starts: Sequence[Kernel]
    base: Parameters
    priors: Mapping[str, LogNormal]
    beats: "Callable[[Ranking], tuple[float, float]] | None" = None


@dataclass(frozen=True, eq=False)
class Learned:
    """A kernel with parameters learned from a few rows, the priors it had, and what other rows say of it."""

    trial: Trial
    outcome: Outcome
    priors: Mapping[str, LogNormal]

    @property
    def name(self) -> str:
        return self.trial.name


def different(learned: Sequence[Learned]) -> list[Learned]:
    """The candidates without those that score as one before them does, such as one with a term that died."""
    kept: list[Learned] = []
    for each in learned:
        a = each.trial
        same = (max(abs(a.rmse / b.trial.rmse - 1.0), abs(a.log_density - b.trial.log_density)) for b in kept)
        if min(same, default=np.inf) > SAME:
            kept.append(each)
    return kept


class Comparison:
    """Exact GPs learned from some rows of a stage and judged by others, given all but the one judged. Of few
    rows each third is judged in turn, with parameters learned from the other two; where these have targets
    that are all alike, and of very few, all are learned from, and judge.
    """

    def __init__(self, start: Stage, learned: int, judged: int, iterations: int) -> None:
        n = start.rows.n
        order = np.random.default_rng(n + 1).permutation(n)
        first = varied(start.rows, order[:learned])[0]
        order[[0, np.flatnonzero(order == first)[0]]] = first, order[0]
        self.rows = np.sort(order[:judged])
        self.judging = start.exact_on(self.rows)
        groups = [order[learned:judged]] if n >= IN_THIRDS else [order[k::THIRDS] for k in range(THIRDS)]
        rest = [order[:learned]] if len(groups) == 1 else [np.setdiff1d(order, group) for group in groups]
        if n < LEAST_ROWS or (len(groups) > 1 and any(varied(start.rows, own)[0] != own[0] for own in rest)):
            groups, rest = [order], [order]
        self.fresh = [np.isin(self.rows, group) for group in groups]
        # the rows that judge come last, for `exact_left_out_of`
        self.judges = [
            (start.exact_on(np.concatenate([self.rows[~own], self.rows[own]])), int(np.count_nonzero(own)))
            for own in self.fresh
        ]
        iterations = min(iterations, start.max_iterations)
        start = replace(start, trace=None, checkpoint=None, restarts=0, max_iterations=iterations)
        start = replace(start, window=CANDIDATE_WINDOW, least_gain=0.1 * CANDIDATE_WINDOW * LEAST_GAIN)
        self.learning = [start.exact_on(np.sort(rows)) for rows in rest]

    def climbed(
        self, asked: Sequence[StartsAndPriors], hopeless: Hopeless | None = None
    ) -> list[list[Outcome]]:
        """For each of what is asked, the ends of climbs from each group of rows to learn from; none where the
        parameters leave no exact GP of them. Of several groups the first is learned from all starts, the
        others from the highest end of these, which is near; or not at all where that end is hopeless. Several
        cores share the climbs, unless someone listens to each iteration.
        """
        first, *others = self.learning
        starts = [(k, start) for k, (starts, _) in enumerate(asked) for start in starts]
        ends = self._side_by_side([(first, start, asked[k][1]) for k, start in starts])
        found = [list[Outcome]() for _ in asked]
        for (k, _), each in zip(starts, ends):
            found[k] = sorted([*found[k], *each], key=lambda outcome: outcome.run.value)[-1:]
        going = [k for k, each in enumerate(found) if each and not each[0].run.interrupted]
        if others and hopeless is not None:
            given_up = hopeless(going, [found[k][0] for k in going])
            going = [k for k, is_so in zip(going, given_up) if not is_so]
        further = [(k, stage) for k in going for stage in others]
        ends = self._side_by_side([(stage, found[k][0].parameters, asked[k][1]) for k, stage in further])
        for k in going:
            own = [each for (j, _), each in zip(further, ends) if j == k]
            found[k] = found[k] + [end for each in own for end in each] if all(own) else []
        return found

    def _side_by_side(self, climbs: Sequence[Climb]) -> list[list[Outcome]]:
        caller, progress = get_ident(), self.judging.progress

        def climb(stage: Stage, start: Parameters, priors: Mapping[str, LogNormal]) -> list[Outcome]:
            shown = progress if get_ident() == caller else False
            return _climb(replace(stage, progress=shown), start, priors)

        return side_by_side([partial(climb, *each) for each in climbs], parallel=self.parallel)

    @property
    def parallel(self) -> bool:
        """Whether several cores may share climbs: no one listens to iterations, no device has the rows."""
        listened = callable(self.judging.progress) or reports_elsewhere()
        return is_numpy(self.judging.rows.X) and not listened

    def left_out(self, parameters: Parameters) -> LeftOut:
        """Each row to judge by as the others predict it."""
        return left_out_of(at_own_basis(self.judging, parameters).rows)

    def judged(self, ends: Sequence[Parameters], name: str) -> Trial:
        """The trial of parameters learned from each group of rows, by the others."""
        squares, densities, weights = [], [], []
        for end, (judge, count) in zip(ends, self.judges):
            P = at_own_basis(judge, end).rows
            left = exact_left_out_of(P, count)
            squares.append(np.mean(left.error.reshape(count, -1) ** 2, axis=1))
            densities.append(left.log_density)
            weights.append((to_numpy(P.weight(slice(None))) * np.ones(P.n))[P.n - count :])
        w = np.concatenate(weights)
        rmse = float(np.sqrt(np.average(np.concatenate(squares), weights=w)))
        density = float(np.average(np.concatenate(densities), weights=w))
        return Trial(name, rmse, density)


def ranked_kernels(
    start: Stage, kernels: Mapping[str, Kernel], aim: str = "both", levels: bool = False
) -> list[Learned]:
    """The kernels with parameters learned by exact GPs on some of the rows, the best first by other rows.

    The first kernel of the dictionary is learned from its own lengthscales and from shorter ones; the others
    start where the better of the two ended. Where there are others, further candidates have one lengthscale
    for all inputs, or are linear, or see `levels` of columns with few values; and the best of all gets a
    linear term, and a curve of each input. Lengthscales have broad log-normal priors about those given.
    """
    ranking = Ranking(start, aim)
    given = parameters_of(ranking.compared.judging.problem)
    (name, first), *others = kernels.items()
    short = times(first, "lengthscale", SHORTER_START)
    ranking.learn([Candidate(name, (first, short), given, broad_priors(first))])
    if not ranking.learned:
        return []
    # with little noise all may become noise
    base = ranking.learned[0].outcome.parameters._replace(noise=given.noise)
    like = [(name, kernel, _like(kernel, base.kernel)) for name, kernel in others]
    candidates = [Candidate(name, (start,), base, broad_priors(kernel)) for name, kernel, start in like]
    X = to_numpy(start.rows.X)
    several = X.shape[1] > 1 and bool(np.any(np.ptp(X, axis=0) > 0))
    if others and several and isinstance(first, Stationary) and not first.uncertain:
        if np.ndim(first.lengthscale) > 0:  # else one for all was asked for
            on_trial = _of_levels(first, given, X) + _of_warps(first, given, X) if levels else []
            ranking.learn(candidates + _plainer(first, given) + on_trial)
            _learn_terms(ranking, first, given, X.shape[1])
            return ranking.in_order()
    ranking.learn(candidates)
    return ranking.in_order()


def levels_of(X: np.ndarray) -> list[tuple[int, float]]:
    """Column and value of each level: the values of columns that have few of them, but not two alone."""
    columns = [(k, np.unique(X[:, k])) for k in range(X.shape[1])]
    found = [(k, float(value)) for k, values in columns if len(values) in LEVEL_COUNTS for value in values]
    return found if len(found) <= MOST_HATS else []


def warps_of(X: np.ndarray) -> list[tuple[int, float, float]]:
    """Column, centre and scale of a warp of each column with long tails, by its median and quartiles."""
    low, centre, high = np.quantile(X, [0.25, 0.5, 0.75], axis=0)
    scale, spread = 0.5 * (high - low), np.std(X, axis=0)
    long = np.mean((X - np.mean(X, axis=0)) ** 4, axis=0) > LONG_TAILED * spread**4
    many = np.array([len(np.unique(X[:, k])) > max(LEVEL_COUNTS) for k in range(X.shape[1])])
    warped = np.flatnonzero(long & many & (scale > 0.0))
    return [(int(k), float(centre[k]), float(scale[k])) for k in warped]


class Ranking:
    """The candidates that were learned from some rows of a stage and judged by others."""

    def __init__(self, start: Stage, aim: str) -> None:
        self.compared = Comparison(start, COMPARED_ROWS, IN_THIRDS, KERNEL_ITERATIONS)
        self.aim, self.learned = aim, list[Learned]()
        self.firsts, self.behind = list[Trial](), list[Learned]()  # by the first group; given up after it

    def learn(self, candidates: Sequence[Candidate]) -> None:
        """Learn and judge candidates, those on trial last, and add those that succeed; none once interrupted
        or out of time.
        """
        stopped = any(each.outcome.run.interrupted for each in self.learned)
        if self.learned and (stopped or self.compared.judging.is_over):
            return
        asked = [([c.base._replace(kernel=start) for start in c.starts], c.priors) for c in candidates]
        ends = self.compared.climbed(asked, partial(self._hopeless, candidates))
        judges = [partial(self._judged, c.name, outcomes) for c, outcomes in zip(candidates, ends)]
        trials, groups = side_by_side(judges, parallel=self.compared.parallel), len(self.compared.learning)
        for candidate, outcomes, trial in zip(candidates, ends, trials):
            if trial is not None:
                given_up = len(outcomes) == 1 < groups and not outcomes[0].run.interrupted
                if candidate.beats is not None:
                    likeliest, least = candidate.beats(self)
                    given_up = given_up or not (trial.log_density > likeliest and trial.rmse < least)
                learned = Learned(trial, outcomes[0], candidate.priors)
                (self.behind if given_up else self.learned).append(learned)

    def _judged(self, name: str, outcomes: Sequence[Outcome]) -> Trial | None:
        """The trial of these ends, one for each group of rows; None where they leave no exact GP."""
        if not outcomes:
            return None
        try:
            trial = self.compared.judged([outcome.parameters for outcome in outcomes], name)
        except FactorisationError:
            return None
        return replace(trial, seconds=sum(outcome.run.seconds for outcome in outcomes))

    def _hopeless(
        self, candidates: Sequence[Candidate], asked: Sequence[int], ends: Sequence[Outcome]
    ) -> list[bool]:
        """Whether the first group finds each of these far behind another in both error and log density; those
        on trial are no measure for others before them.
        """
        judges = [partial(self._judged, "", [end]) for end in ends]
        owns = side_by_side(judges, parallel=self.compared.parallel)
        plain = sum(candidates[k].beats is None for k in asked)
        hopeless = list[bool]()
        for turn in (owns[:plain], *([own] for own in owns[plain:])):
            self.firsts += [own for own in turn if own is not None]
            best = self.firsts[best_of(self.firsts, self.aim)] if self.firsts else None
            hopeless += [best is None or own is None or _far_behind(own, best) for own in turn]
        return hopeless

    def give_up(self, hopeless: Callable[[Learned], bool]) -> None:
        """Set aside the candidates of which this is true."""
        self.behind += [each for each in self.learned if hopeless(each)]
        self.learned = [each for each in self.learned if each not in self.behind]

    def least_error(self) -> float:
        return min(each.trial.rmse for each in self.learned)

    def in_order(self) -> list[Learned]:
        """The best, then the best of the others, and so on."""
        left, ranked = list(self.learned), list[Learned]()
        while left:
            ranked.append(left.pop(best_of([each.trial for each in left], self.aim)))
        return ranked + self.behind


def _far_behind(own: Trial, best: Trial) -> bool:
    return own.rmse > (1.0 + BEHIND) * best.rmse and own.log_density < best.log_density - BEHIND


def _plainer(first: Stationary, given: Parameters) -> list[Candidate]:
    """One lengthscale for all inputs, and a linear kernel."""
    one = RationalQuadratic(float(np.exp(np.mean(np.log(first.lengthscale)))), first.variance)
    linear = Linear(variance=first.variance / np.size(first.lengthscale))
    return [
        Candidate("rationalquadratic, one lengthscale", (one,), given, broad_priors(one)),
        Candidate("linear", (linear,), given, {}),
    ]


def _of_levels(first: Stationary, given: Parameters, X: np.ndarray) -> list[Candidate]:
    """The first kernel with a hat for each level, where there are any. It must be clearly likelier than all
    others, and err less: with many parameters it may win by a few rows.
    """
    levels, d = levels_of(X), X.shape[1]
    if not levels:
        return []
    shares = np.array([np.mean(X[:, k] == value) for k, value in levels])
    scales = np.broadcast_to(first.lengthscale, d), np.sqrt(d * shares * (1.0 - shares))
    kernel = Levels(replace(first, lengthscale=np.concatenate(scales)), levels)

    def beats(ranking: Ranking) -> tuple[float, float]:
        return max(each.trial.log_density for each in ranking.learned) + LEVELS_GAIN, ranking.least_error()

    return [
        Candidate(f"{type(first).__name__.lower()} of levels", (kernel,), given, broad_priors(kernel), beats)
    ]


def _of_warps(first: Stationary, given: Parameters, X: np.ndarray) -> list[Candidate]:
    """The first kernel of warped inputs, where there are columns with long tails. It must err much less than
    all others, and be likelier than the best of them.
    """
    warps, d = warps_of(X), X.shape[1]
    if not warps:
        return []
    seen, lengthscale = np.arange(d), np.array(np.broadcast_to(first.lengthscale, d))
    for i, (k, centre, scale) in enumerate(warps):
        seen[k] = d + i
        lengthscale[k] *= np.std(np.arcsinh((X[:, k] - centre) / scale))
    kernel = Warped(replace(first, lengthscale=lengthscale, columns=tuple(map(int, seen))), warps)

    def beats(ranking: Ranking) -> tuple[float, float]:
        return ranking.in_order()[0].trial.log_density, MUCH_LESS * ranking.least_error()

    name = f"{type(first).__name__.lower()} of warped inputs"
    return [Candidate(name, (kernel,), given, broad_priors(kernel), beats)]


def _learn_terms(ranking: Ranking, first: Stationary, given: Parameters, d: int) -> None:
    """The best of all with a linear term or a curve of each input. Curves begin with all of the variance,
    since from little they do not find that a function is a sum, and with little, a share of the noise (a
    likelihood counts as noise of a tenth of the variance). Terms that end with less than that are given up.
    Levels get none: their hats are a function of each column already.
    """
    best, noise = ranking.in_order()[0], getattr(given.noise, "values", given.noise)
    if isinstance(best.outcome.parameters.kernel, Levels):
        return
    if isinstance(noise, Likelihood):
        noise = NOISE_SHARE * first.variance
    end, share = best.outcome.parameters, TERM_SHARE * float(np.mean(noise))
    terms: dict[str, list[Kernel]] = {"linear": [Linear(variance=share)]}
    if d <= MOST_CURVES:
        scales = np.broadcast_to(first.lengthscale, d) / np.sqrt(d)
        curves = Sum(tuple(Matern52(float(scales[k]), first.variance / d, columns=(k,)) for k in range(d)))
        terms["curves"] = [curves, times(curves, "variance", share / first.variance)]
    candidates = []
    for term, starts in terms.items():
        if term != best.name:
            kernels = [end.kernel + start for start in starts]
            own = {key.replace("kernel.", "kernel.0."): prior for key, prior in best.priors.items()}
            priors = broad_priors(kernels[0]) | own
            candidates.append(Candidate(f"{best.name} + {term}", kernels, end, priors))
    ranking.learn(candidates)
    for candidate in candidates:
        count = d if candidate.name.endswith("curves") else 1
        ranking.give_up(partial(_shrank, candidate.name, count, share / count))


def _shrank(name: str, count: int, least: float, each: Learned) -> bool:
    """Whether this is the candidate of that name, and its last terms have a variance below the least."""
    now = [v for name, v in each.outcome.parameters.kernel.parameters.items() if name.endswith("variance")]
    return each.name == name and all(v < least for v in now[-count:])


def broad_priors(kernel: Kernel) -> dict[str, LogNormal]:
    """Log-normal priors of every lengthscale about what it is; levels of a category, where there are many,
    are alike: a few rows each do not tell their covariances.
    """
    known = {f"kernel.{name}": value for name, value in kernel.parameters.items()}
    broad = {name: LogNormal(v, PRIOR_SIGMA) for name, v in known.items() if name.endswith("lengthscale")}
    many = [name for name, v in known.items() if name.endswith(("W", "kappa")) and len(v) > LEVELS_ALIKE]
    return broad | {name: (Alike if name[-1] == "W" else LogNormal)(None, LEVEL_SIGMA) for name in many}


def loosened(priors: Mapping[str, LogNormal]) -> dict[str, LogNormal]:
    """The priors with lengthscales that may be as long as they like. Kernels are ranked without them: from a
    few rows some would win by inputs that they leave out.
    """
    long = {name: prior for name, prior in priors.items() if name.endswith("lengthscale")}
    return {**priors, **{name: replace(p, sigma_above=LAST_SIGMA_ABOVE) for name, p in long.items()}}


def _climb(stage: Stage, start: Parameters, priors: Mapping[str, LogNormal]) -> list[Outcome]:
    """The end of a climb, or none where there is too little noise for an exact GP."""
    try:
        return [replace(at_own_basis(stage, start), priors=priors).run()]
    except FactorisationError:
        return []


def at_own_basis(stage: Stage, parameters: Parameters) -> Stage:
    """The stage with these parameters but for its basis, which it keeps."""
    return stage.at(parameters._replace(basis=parameters_of(stage.problem).basis))


def _like(kernel: Kernel, other: Kernel) -> Kernel:
    """The kernel with the values of another kernel's parameters, where both have them in one shape."""
    known = {name: v for name, v in other.parameters.items() if name in kernel.parameters}
    same = {name: v for name, v in known.items() if np.shape(v) == np.shape(kernel.parameters[name])}
    return kernel.with_parameters(same)
