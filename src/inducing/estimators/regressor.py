"""`SparseGPRegressor`: sparse Gaussian process regression under scikit-learn's contract."""

from __future__ import annotations

import time
from copy import copy
from dataclasses import KW_ONLY, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin

from ..errors import ParameterError, require_count, require_in, require_one_of
from ..files.models import OF_A_HEADER, fitting_size, require_fitting
from ..inference import selection
from ..inference.pic import PICPredictor
from ..inference.regression import DENSE, problem_of
from ..learning import outofcore, recipes
from ..learning.choice import AIMS, Choice, choose
from ..learning.diagnosis import Diagnosis
from ..learning.noise import NOISE_WAYS, NoiseFit, jointly_over, learn_noise, noise_of_sample
from ..learning.stages import Fit
from ..model.kernels.base import Kernel
from ..model.likelihoods import Likelihood
from ..model.problem import as_inputs, as_targets
from ..numerics.arrays import LARGEST_FLOAT, Array, as_columns, placed, to_numpy
from ..progress import Line, stop_on_interrupt
from ..sources.arrays import as_source, is_parted
from ..sources.dask_collections import is_dask
from ..sources.distributed import with_workers
from ..sources.source import Source
from . import preparation
from .base import Rated, generator, is_default
from .guide import check_guide, cross_fitted
from .judging import report_of, with_left_out
from .outputs import Outputs, in_rows, prepared_source
from .preparation import Data, Scaling, checked_weights, noise_way
from .starting import given_priors, own_kernel, start_kernels
from .watching import with_callbacks

DEFAULT_SIZE = 100  # basis functions where n_inducing is "auto"
LISTED_UP_TO = 4000  # rows of an exact GP whose report lists surprising ones: it takes two factorisations
# with one of these parameters given, "auto" is FITC
OF_A_SPARSE_BASIS = "basis inducing optimize recipe projection likelihood power n_blocks fixed priors".split()
OF_A_SPARSE_BASIS += "restarts device checkpoint mean".split()
PASSED_ON = ("power", "jitter", "fixed", "validation_fraction", "restarts", "checkpoint")  # to the recipe


@dataclass(eq=False, repr=False)
class SparseGPRegressor(Rated, MultiOutputMixin, RegressorMixin, Outputs):
    """Sparse Gaussian process regression for scikit-learn.

    Inputs and targets are standardised inside. In the user's units are `inducing`, `noise`, predictions,
    `noise_`, `log_evidence_`, and the lengthscales and periods of `kernel`, `priors` and `kernel_`; in those
    of the standardised data are the variances of kernels, `mean` and `posterior_`. With standardize=False
    the two are the same.

    Parameters
    ----------
    kernel : a Kernel with lengthscales in the units of X, or the name of a stationary one ("rbf",
        "matern52", ...) with a lengthscale for each input, started at √d standard deviations; "auto" takes
        the one that best predicts left-out rows, by exact GPs on a few rows. None is "auto" where the
        approximation is left open, too, else "rbf", and "matern32" for "neighbours".
    ard : whether a kernel given by name, or chosen, has a lengthscale for each input; False is one for all,
        in standard deviations, and no sums are tried.
    approximation : "fitc", "vfe", "dtc", "sor", "fic", "pep", "pitc", "pic", "neighbours", "exact", "cg",
        "sod", or "auto": the exact GP up to 10,000 rows, beyond that neighbours or FITC, whichever predicts
        held-out rows better. It is FITC where `n_inducing` or another parameter of a sparse basis is given.
    n_inducing : how many basis functions, and no more than the data have different rows; "auto" is 100.
        "exact" and "cg" have one per row.
    basis : "points", "multiscale" (Gaussians of any width, for the RBF kernel), or "auto": multiscale for a
        plain RBF kernel with the recipe "auto", a free basis and no `inducing`, points otherwise.
    inducing : where the basis starts, an array (m, d) or a rule of `inducing.selection`: "kmeans", "random",
        "variance", "novelty", "information-gain", "smola-bartlett", "matching-pursuit"; rules that need a
        kernel and noise use the starting ones. None leaves it to the recipe: "auto" takes "variance" with a
        kernel learned from a few rows, the others "kmeans".
    optimize : "all", "hyperparameters", "basis", or None to learn nothing.
    recipe : how all of it is learned, one of `inducing.recipes`: "auto" goes from VFE to FITC in stages,
        "direct" learns everything at once.
    validation_fraction : share of the rows (10 to 500 of them) that "auto" holds out while it learns, to stop
        and to choose between its stages; the posterior then has all rows. 0 holds out none.
    projection : None, or a number of directions: the kernel then sees that many linear combinations of the
        inputs, learned with everything else.
    categorical : the columns that hold codes 0, 1, … of categories, whose covariances are learned
        (`kernels.Category`); None takes those that a `TableEncoder` knows. With allow_unseen=True a level
        that the fit did not see has the levels' mean variance and no covariance with them.
    missing : "refuse" rows with gaps (NaN) in X, "drop" them, or "use" them: the RBF kernel averages f over
        the possible values, others take a mean and an indicator. See docs/outputs.md.
    outputs : for y (n, p): "shared" is one kernel and noise for unrelated outputs; "independent" a model for
        each; "coregionalised" one process in which outputs inform each other, with a noise and unit for each.
        With the latter two NaN in y means not measured. `rank` is that of the outputs' learned covariance.
    noise : variance of the noise to start from, or one per row, which is then taken as known; None and
        "constant" are a tenth of the targets' variance. With a given variance several outputs have one
        scale. "learned" makes the logarithm of the noise a second process on the same basis, learned from
        left-out errors of a mean learned with constant noise; "learned-jointly" learns both at once, for a
        better log density but larger errors. Either starts from VFE instead of "fitc" or "vfe" ("neighbours"
        stays), and takes one target; with likelihood="studentt" the noise is Student's t.
    likelihood : None is Gaussian noise; else a name ("poisson", "studentt", "negativebinomial", "binomial",
        "gamma", ...) or an object of `inducing.likelihoods` in units of y, with parameters that learning
        starts from; fixed=["likelihood"] holds them. Exposures, trials and marks of censoring are a second
        column of y. y is not standardised where the likelihood does not allow it.
    mean : a prior mean from `inducing.means` for the standardised targets; None is the average of y.
    power : power of "pep", in (0, 1].
    neighbours : for "neighbours", how many near rows a row or a query depends on: more are nearer to the
        exact GP, and slower.
    objective : what "auto" chooses by: "both" takes, of the candidates within 2 % of the least error, the one
        with the best log density; "rmse" and "log_loss" look at one alone.
    time_budget : seconds after which learning ends with its best result so far.
    max_file_size : the most bytes that `save` may write; `fit` refuses a model whose file would be larger.
    n_blocks : how many, for "pitc" and "pic", by k-means; None makes blocks of about n_inducing rows.
    restarts, max_iter, jitter, fixed, priors, checkpoint : as for `inducing.fit`.
    full_iter : iterations over all rows of data in parts; `max_iter` then limits those over the sample. None
        takes at most 30, fewer when they gain too little; a number takes that many unless learning converges.
    random_state : seed of the start and the restarts.
    verbose : 1 shows the iterations on stderr.
    progress : a function of (iteration, objective), called after each.
    device : None computes with NumPy; "cuda" and other PyTorch devices compute there, in double precision.
    guide : "boosting" gives the process one more input: each row's prediction by gradient-boosted trees
        (scikit-learn's HistGradientBoosting), made without that row in the fit. See docs/training.md.
    encoder : a `TableEncoder` that turns the columns of data frames into numbers; None is a default one.

    Attributes
    ----------
    posterior_ : the Posterior (for "pic" and "neighbours" a predictor) of the standardised data.
    fit_result_ : the result of `inducing.fit`; for data in parts its n_evaluations of evidence and gradient,
        and their seconds, are those over all rows.
    report_ : a `Diagnosis` of the fit: bounds on the exact GP's evidence, what the basis leaves out, advice;
        print it. For data in parts it is about a sample. Without Gaussian noise it is plain text.
    approximation_ : the row of the table, or "exact", that was used. choice_ : what "auto" tried, or None.
    kernel_ : the learned kernel, with lengthscales in the units of X.
    basis_size_, n_iter_, n_rows_, n_features_in_; from data frames feature_names_in_, encoder_.
    noise_ : variance of the noise of y, a number or one per output; None where it differs from row to row.
    likelihood_ : the likelihood with its learned parameters, in units of y; None is Gaussian noise.
    observations_ : likelihood and posteriors as one value, in units of the standardised data, with
        `latent`, `at`, `sample` and `compile`. noise_posterior_ : the process of the log variance of learned
        noise, or None.
    log_evidence_ : log density of y, in its own units, under the fitted model.
    x_mean_, x_scale_ : (d,). y_mean_, y_scale_ : numbers, or one per output.
    models_ : the regressor of each independent output; posterior_, choice_, kernel_, likelihood_, x_mean_,
        x_scale_, noise_posterior_, and noise_ where one is None, are then lists.
    """

    kernel: Kernel | str | None = None
    approximation: str = "auto"
    n_inducing: int | str = "auto"
    basis: str = "auto"
    _: KW_ONLY
    ard: bool = True
    inducing: Any = None
    optimize: str | None = "all"
    recipe: str = "auto"
    validation_fraction: float = 0.1
    projection: int | None = None
    categorical: Any = None
    allow_unseen: bool = False
    missing: str = "refuse"
    outputs: str = "shared"
    rank: int | None = None
    noise: Any = None
    likelihood: Likelihood | str | None = None
    mean: Any = None
    power: float | None = None
    neighbours: int = 20
    objective: str = "both"
    time_budget: float | None = None
    max_file_size: int | None = None
    n_blocks: int | None = None
    restarts: int = 0
    max_iter: int = 1000
    full_iter: int | None = None
    jitter: float = 1e-8
    fixed: Any = ()
    priors: Any = None
    standardize: bool = True
    random_state: Any = None
    verbose: int = 0
    progress: Any = None
    device: str | None = None
    checkpoint: str | Path | None = None
    encoder: Any = None
    guide: str | None = None

    left_open = False  # whether n_inducing was "auto"
    _units = ("x_mean", "x_scale", "y_mean", "y_scale")

    @with_callbacks
    @stop_on_interrupt()
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, x_std: Any = None) -> Self:
        """Learn from X (n, d) and y (n,) or (n, p): p outputs, or the columns that the likelihood takes. A
        row of weight w counts w times, one of weight 0 not at all. `x_std` are the standard deviations of the
        entries of X, where these are not exactly known.

        The order of the rows does not matter, and a row given twice is the same row with twice the weight:
        before anything else the rows are sorted, and equal ones merged.

        Data larger than memory: X is anything that `inducing.as_source` takes in parts (a source, parquet
        files by folder, glob or list, Dask data frames and arrays, zarr, a function that makes iterators, a
        large memory map), and y what goes with it, such as the name of the target column. Learning starts
        with the recipe on 20,000 random rows, goes on with 200,000, and then with all of them for `full_iter`
        iterations, two passes each; parts are kept in memory up to 1 GiB. A Dask collection stays on the
        workers of the current client, if any.
        """
        if is_parted(X):
            source = as_source(X, y)
            if self.missing != "refuse" or self.outputs == "coregionalised":
                source = source.with_gaps()
            return self._fit_source(with_workers(source) if is_dask(X) else source, sample_weight)
        self.models_ = None
        if self.outputs == "independent" and np.ndim(y) == 2:
            return self._fit_each(X, y, sample_weight, x_std)
        X, y = self._with_gaps(X, y)
        X, y, weights = self._prepared(X, y, checked_weights(sample_weight, X), x_std)
        X, likelihood = as_inputs(X, most=LARGEST_FLOAT), preparation.start_likelihood(self)
        y = as_targets(y, X, most=LARGEST_FLOAT) if likelihood is None else likelihood.check(y)
        if check_guide(self, y, self.kinds_.way):
            guide, predicted = cross_fitted(X, y, weights)
            self.kinds_, X = replace(self.kinds_, guide=guide), np.column_stack([X, predicted])
        rng, kinds = generator(self.random_state), self.kinds_
        one_output = (y.ndim == 1 or likelihood is not None) and kinds.output is None
        data = Data.merged(X, as_columns(y), weights, self.noise)
        data, scaling = data.standardised(self.standardize, likelihood, kinds)
        settled = self._settled()
        task, optimize = settled._task(data, scaling, y.ndim == 1, rng, likelihood)
        self.approximation_ = settled.approximation
        self._centres: np.ndarray | None = settled._centres
        self.choice_: Choice | None = None
        learned = self._chosen(task, data) if self._leaves_all_open() else settled._learn(task, optimize)
        rows: Any = float(data.weights[data.seen(likelihood)].sum())
        if kinds.output is not None:
            rows = np.bincount(data.X[:, kinds.output].astype(int), data.weights)
        self._take(learned, scaling, one_output, rows)
        self._rows, self._long = ((X, y, weights), None) if kinds.output is None else (None, (X, y, weights))
        report = report_of(self, self.fit_result_, task.problem, rows, to_numpy(y))
        known = len(X) <= LISTED_UP_TO or self.approximation_ not in DENSE
        self.report_ = with_left_out(self, report, weights) if known else report
        require_fitting(self)
        return self

    def _settled(self) -> SparseGPRegressor:
        """Return a copy of this regressor with FITC (VFE for learned noise) and 100 functions for "auto"."""
        if isinstance(self.n_inducing, str) and self.n_inducing != "auto":
            raise ParameterError(f"n_inducing must be a number, not {self.n_inducing!r}")
        require_in("time_budget", self.time_budget or 0.0, "[0, inf]")
        require_count("max_iter", self.max_iter, 0)
        require_count("full_iter", 0 if self.full_iter is None else self.full_iter, 0)
        require_in("validation_fraction", self.validation_fraction, "[0, 1)")
        require_one_of("objective", self.objective, AIMS)
        settled = copy(self)
        settled.left_open = self.n_inducing == "auto"
        if settled.left_open:
            limit = self.max_file_size
            settled.n_inducing = DEFAULT_SIZE if limit is None else min(DEFAULT_SIZE, fitting_size(limit))
        if self._leaves_all_open():
            settled.kernel = None if self.kernel == "auto" else self.kernel
        if self.approximation == "auto":
            settled.approximation = "fitc" if noise_way(self.noise) is None else "vfe"
        return settled

    def _leaves_all_open(self) -> bool:
        """Return whether `choose` picks the approximation: it and n_inducing are "auto", the noise is one
        number, and none of the parameters that only a sparse basis takes is given.
        """
        default = {field.name: field.default for field in fields(type(self))}
        same = all(is_default(getattr(self, name), default[name]) for name in OF_A_SPARSE_BASIS)
        one_noise = np.ndim(self.noise) == 0 and noise_way(self.noise) is None
        return same and one_noise and self.n_inducing == self.approximation == "auto"

    def _chosen(self, task: recipes.Task, data: Data) -> Fit | NoiseFit:
        """Fit the kernel and approximation that best predict rows they were not learned from."""
        candidates = {type(task.kernel).__name__.lower(): task.kernel}
        if self.kernel is None or self.kernel == "auto":
            candidates = start_kernels(data, data.target_variance(None), self.kinds_, self.rank, self.ard)
        most = np.inf if self.max_file_size is None else self.max_file_size - OF_A_HEADER
        choice = choose(task, candidates, aim=self.objective, neighbours=self.neighbours, most_bytes=most)
        self.choice_, self.approximation_ = choice, choice.approximation
        return choice.learned

    def _learn(self, task: recipes.Task, optimize: str) -> Fit | NoiseFit:
        """Fit a task by the recipe, with noise as a process of its own where `noise` says so."""
        way = noise_way(self.noise)
        if way is None:
            return recipes.train(self.recipe, task, optimize)
        if self.approximation not in ("fitc", "vfe", "neighbours") or task.problem.p > 1:
            needed = "one target and approximation='vfe' or 'neighbours'"
            have = f"there are {task.problem.p} targets and approximation={self.approximation!r}"
            raise ParameterError(f"noise={self.noise!r} needs {needed}, but {have}")
        return learn_noise(way, self.recipe, task, optimize)

    def _fit_source(self, source: Source, sample_weight: Any) -> Self:
        """Fit a sample of a source's rows by the recipe, then go on with all of them."""
        preparation.check_parted(source, sample_weight, self._settled())
        self.models_, table, rng = None, source, generator(self.random_state)
        source, of_outputs = prepared_source(self, source.cached())
        likelihood, one_output = preparation.start_likelihood(self), source.one_output
        settled = self._settled()
        with Line(bool(self.verbose)) as line:
            survey = outofcore.survey(source.watched(line.part) if self.verbose else source)
        moments, sample = survey.moments, survey.sample
        scaling = replace(Scaling.none(source.n_features, table.n_outputs), output=self.kinds_.output)
        if self.standardize:
            of_X = self.kinds_.in_place(*moments.X.center_and_scale())
            mean, scale = moments.Y.center_and_scale() if of_outputs is None else of_outputs[:2]
            scaling = Scaling(*of_X, mean, scale, scaling.output).under(likelihood)
            if self.noise is not None and of_outputs is None:
                scaling = scaling.alike(moments.Y.low < moments.Y.high)
        scaled = source.changed(scaling)
        count = outofcore.judges(sample, self.validation_fraction)
        few = sample.rows(count, outofcore.START, False)
        data = Data.merged(few.X, few.Y, np.ones(len(few.X)), self.noise).scaled(scaling)
        ends = (0, count), (count, None)
        judge, more = (scaling(sample.rows(first, last, one_output)) for first, last in ends)
        task, optimize = settled._task(data, scaling, one_output, rng, likelihood, scaled)
        self.approximation_, self._centres, self.choice_ = settled.approximation, None, None
        result = outofcore.train(
            self.recipe,
            task,
            more,
            scaled,
            self.full_iter,
            optimize=optimize,
            held_out=(judge.X, judge.y) if count else None,
            key=float(sample.keys[count]),
        )
        learned: Fit | NoiseFit = result
        if noise_way(self.noise) is not None:
            start = result.kernel, result.basis, task.problem.row, result.noise
            P = problem_of(*start, more.X, more.y, mean=result.mean, jitter=self.jitter)
            learned = noise_of_sample(P, result, task)
            if self.noise == NOISE_WAYS[1]:
                learned = jointly_over(scaled, task.stage(), learned)
        rows = moments.n if of_outputs is None else of_outputs[2]
        one = of_outputs is None and (one_output or likelihood is not None)
        self._take(learned, scaling, one, rows)
        self._rows = self._long = None
        self.n_rows_ = moments.n if of_outputs is None else self.n_rows_
        self._take_layout(table.layout)
        again = result
        if likelihood is None:
            task = task.after(result)
            again = task.set(max_iterations=0, progress=False, trace=None, checkpoint=None).run()
        self.report_ = report_of(self, again, task.problem, float(data.weights.sum()))
        if isinstance(self.report_, Diagnosis):
            of_all = {name: getattr(result, name) for name in ("at_bounds", "converged", "gain")}
            self.report_ = replace(self.report_, **of_all)
        require_fitting(self)
        return self

    def _task(
        self,
        data: Data,
        scaling: Scaling,
        one_column: bool,
        rng: Any,
        likelihood: Likelihood | None,
        source: Source | None = None,
    ) -> tuple[recipes.Task, str]:
        """Return the problem to learn and its `optimize`; with a source, `data` are a sample of its rows."""
        variance = data.target_variance(likelihood)
        deadline = np.inf if self.time_budget is None else time.monotonic() + self.time_budget
        noise, mean = preparation.start_noise(self, data, scaling, likelihood)
        kernel = own_kernel(self, data, noise, variance, scaling, deadline)
        Z, whole = preparation.start_places(self, data, scaling, kernel, rng)
        if source is not None and isinstance(self.inducing, str) and self.inducing == "kmeans":
            Z = outofcore.refined(source, Z)
        preparation.check_file_size(self, data, len(Z))
        if self.approximation == "sod":
            data = data[np.unique(selection.nearest(Z, data.X))]
        self._centres = preparation.block_centres(self, data.X, len(Z), rng)
        optimize = self.optimize
        if optimize is None or (whole and optimize == "all"):
            optimize = "hyperparameters"
        task = recipes.Task(
            kernel,
            preparation.start_basis(self, Z, kernel, free=optimize == "all"),
            "vfe" if noise_way(self.noise) and self.approximation != "neighbours" else self.approximation,
            noise,
            placed(data.X, self.device),
            data.Y[:, 0] if one_column else data.Y,
            mean=mean,
            blocks=None if self._centres is None else selection.nearest(data.X, self._centres),
            neighbours=self.neighbours if self.approximation == "neighbours" else None,
            weights=None if np.all(data.weights == 1.0) else data.weights,
            prelude="all" if self.inducing is None else "hyperparameters",
            max_iterations=0 if self.optimize is None else self.max_iter,
            progress=bool(self.verbose) if self.progress is None else self.progress,
            rng=rng,
            priors=given_priors(self.priors, kernel, scaling.x_scale),
            deadline=deadline,
            **{name: getattr(self, name) for name in PASSED_ON},
        )
        recipes.recipe_for(self.recipe)  # raises if the name is not known
        return (task if self.projection is None else recipes.with_projection(task, self.projection)), optimize

    def _take(self, learned: Fit | NoiseFit, scaling: Scaling, one_output: bool, rows: float) -> None:
        """Set the fitted attributes from the result of a fit to `rows` rows, in the units of `scaling`."""
        result = learned.fit if isinstance(learned, NoiseFit) else learned
        self.fit_result_, self.posterior_ = result, in_rows(result.posterior)
        self._kernel, self.n_iter_ = result.kernel, result.n_iterations
        self.basis_size_ = len(result.posterior.basis)
        self._set_units(scaling, one_output)
        noise = getattr(result.noise, "values", result.noise)
        self._likelihood, self.noise_posterior_ = None, None
        self.noise_of_f_: tuple[Any, float] = (None, 0.0)  # the process and its temperature
        if isinstance(learned, NoiseFit):
            self._likelihood, noise = learned.observations.likelihood, None
            self.approximation_ = learned.approximation
            self.noise_of_f_ = learned.before, learned.temperature
            self.noise_posterior_ = in_rows(learned.observations.posteriors[1])
        elif isinstance(noise, Likelihood):
            self._likelihood = noise
            noise = float(noise.predict(0.0, 0.0)[1]) if noise.located else None
        self.noise_ = None if np.ndim(self.noise) > 0 or noise is None else noise * np.square(self.y_scale_)
        assert result.posterior.log_evidence is not None
        self.log_evidence_ = float(result.posterior.log_evidence + self.nats_of_units(rows))
        for name in ("metadata_", "scores_", "_jackknife"):
            self.__dict__.pop(name, None)

    def nats_of_units(self, rows: Any) -> float:
        """Return what to add to a log density of y / y_scale to have that of y: -log y_scale for each row."""
        return -float(np.sum(rows * np.log(self.y_scale_)))

    def _ask(self, what: str, Xs: Array) -> Any:
        if isinstance(self.posterior_, PICPredictor):  # whose queries belong to blocks
            assert self._centres is not None
            return getattr(self.posterior_, what)(Xs, blocks=selection.nearest(to_numpy(Xs), self._centres))
        return super()._ask(what, Xs)

    def _new_noise(self) -> Any:
        if self.noise_ is None:
            raise ParameterError("noise was given by row, not for new rows; pass latent=True and add it")
        return self.noise_
