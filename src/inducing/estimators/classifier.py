"""`SparseGPClassifier`: sparse Gaussian process classification under scikit-learn's contract."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted

from ..errors import LabelError, ModelFileError, ParameterError, require_count, require_in, require_one_of
from ..files.records import Arrays, Plain, number
from ..inference import selection
from ..inference.propagation import expects
from ..inference.regression import approximation_of, problem_of
from ..learning import outofcore
from ..learning.along_neighbours import ClassesAlongNeighbours, learn_along_neighbours
from ..learning.class_diagnosis import ClassDiagnosis
from ..learning.classes import MANY_LABELS, Coded, Labels, LearnedClasses, learn_classes, learn_classes_of
from ..learning.settings import LogNormal
from ..learning.stages import Stage
from ..model.bases import Points
from ..model.kernels.base import Kernel
from ..model.kernels.stationary import Matern32, Matern52, Stationary
from ..model.likelihoods import Binary
from ..model.posterior import Posterior, prior
from ..model.problem import as_inputs
from ..numerics.arrays import Array, placed
from ..progress import stop_on_interrupt
from ..sources.arrays import as_source, is_parted
from ..sources.dask_collections import is_dask
from ..sources.distributed import with_workers
from ..sources.moments import center_and_scale
from ..sources.source import Source
from ..streams.feeding import all_or_nothing, most_informative_rows
from .base import RENAMED, Estimator, Rated, Sized, generator
from .classes import (
    ClassesOfRows,
    binary_likelihood,
    class_record,
    probabilities_at,
    require_labels,
    restored_classes,
)
from .columns import kinds_of
from .outputs import prepared_source
from .preparation import ONLY_NUMBERS, checked_weights, start_inducing
from .starting import given_kernel, given_priors, start_kernel, warned
from .streaming import Streaming
from .thesis_ways import ThesisWays
from .watching import with_callbacks

CLASSIFIER_METHODS, PLACING_RULES = (None, "ep", "fitc", "online"), ("kmeans", "random", "variance")


@dataclass(eq=False, repr=False)
class SparseGPClassifier(Rated, ClassifierMixin, ClassesOfRows, ThesisWays, Streaming, Sized, Estimator):
    """Sparse Gaussian process classification for scikit-learn: two classes, or one against the rest for each
    of many.

    All classes share the kernel and one basis. With more than two classes the probabilities are those of
    independent labels, given that exactly one is positive (`likelihoods.Binary.probabilities` says why).
    Inputs are standardised inside: `posteriors_` are in units of the standardised inputs, `inducing`,
    lengthscales and periods of `kernel`, `priors` and `kernel_` in the user's. With standardize=False the two
    are the same.

    Parameters
    ----------
    kernel : a Kernel, or the name of a stationary one ("rbf", "matern52", ...), started at √d standard
        deviations; None is "rbf"; "auto" takes RBF, Matérn 5/2 or 3/2, whichever is ahead after a few
        iterations, and for the thesis' methods and "neighbours" "rbf". A name has a lengthscale for each
        input, or with ard=False one for all.
    approximation : the row of the table used for each class, "vfe", "pep", "fitc", "dtc", ...; "auto" is
        "fitc".
    n_inducing : how many basis functions, for the thesis' methods at most; with method=None they are inducing
        inputs that start at `inducing` and are learned with the kernel.
    neighbours : for approximation="neighbours", how many near rows a row or a query depends on; files then
        hold the training rows.
    class_weight : "balanced", a weight for each label, or None.
    validation_fraction : the share of the rows held out to choose between stages of the learning.
    device : a PyTorch device to learn on, such as "cuda".
    method : None learns kernel and basis from all rows by the evidence of `approximation`. The thesis'
        methods: "ep", sparse expectation propagation on a basis found among the rows [004 chapter 4]; "fitc",
        the same on a basis that starts at `inducing` and may move [001 §5]; "online", one pass over the rows
        [004 chapter 3].
    inducing : where the basis starts, except for "ep" and "online": a rule of `inducing.selection` or an
        array (m, d).
    optimize : "hyperparameters" learns the kernel by the evidence; "all" (not for "ep" and "online") moves
        the basis, too; "auto" is "all", and for the thesis' methods "hyperparameters"; None does neither.
    learning_rows : how many rows, drawn at random, the kernel is learned from; None is all.
    likelihood : "probit", "logistic", "step", or one from `inducing.likelihoods` such as Probit(noise=1e-4).
    sweeps, tolerance, removal_score, damping : as for `inducing.expectation_propagation`, which calls the
        third `score`.
    order : how "online" and `partial_fit` read rows: "given" (`fit` shuffles them first), or "information",
        always the most informative row left [004 §3.8.1].
    warmup : how many rows set the units and teach the kernel in `partial_fit`.
    half_life, on_drift : as for `OnlineGPRegressor`.
    max_iter, restarts, fixed, priors, jitter : of the learning, as for
        `inducing.fit_expectation_propagation`. With method=None and a kernel that is not given, priors=None
        is a log-normal prior on the lengthscales about their start, by a factor of e²: labels say little, and
        the evidence of many lengthscales alone over-fits small tables; {} is no prior.
    categorical, allow_unseen, missing : as for `SparseGPRegressor`, with method=None; no rows are dropped.
    random_state : seed of the order in which rows are read, of the start and the restarts.
    encoder : a `TableEncoder` that turns the columns of data frames into numbers; None is a default one.

    Attributes
    ----------
    classes_ : the labels. open_classes_ : whether `partial_fit` learns new labels.
    posteriors_ : a Posterior of the latent f for each class; of two classes only for the second.
    kernel_, likelihood_, basis_size_, n_iter_ (of the learning, at least 1), n_rows_ (read so far), x_mean_,
        x_scale_, n_features_in_; from data frames feature_names_in_, encoder_.
    warming_up_ : whether units and kernel may still change.
    log_evidence_ : log probability of the labels, summed over posteriors_; for "online" that of each row
        given those before. None where it is not known.
    report_ : with method=None, how well each row is classified by the others, how sure that is, and what
        would help; print it. For data in parts it is about a sample.
    """

    kernel: Kernel | str | None = None
    method: str | None = None
    n_inducing: int = 100
    _: KW_ONLY
    approximation: str = "auto"
    neighbours: int = 20
    class_weight: Any = None
    validation_fraction: float = 0.1
    device: str | None = None
    ard: bool = True
    inducing: Any = "kmeans"
    optimize: str | None = "auto"
    learning_rows: int | None = 1000
    likelihood: Binary | str = "probit"
    sweeps: int = 10
    tolerance: float = 1e-6
    removal_score: str = "mean"
    damping: float = 1.0
    order: str = "given"
    warmup: int = 500
    half_life: float | str | None = None
    on_drift: str = "warn"
    max_iter: int = 100
    restarts: int = 0
    fixed: Any = ()
    priors: Any = None
    jitter: float = 1e-8
    categorical: Any = None
    allow_unseen: bool = False
    missing: str = "refuse"
    standardize: bool = True
    random_state: Any = None
    verbose: int = 0
    encoder: Any = None
    capacity: Any = RENAMED

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from X (n, d) and labels y (n,); a row of weight w counts w times.

        Data larger than memory: X is anything that `inducing.as_source` takes in parts, and y what goes with
        it, such as the name of the target column, whose labels are numbers. Learning starts with 100,000
        random rows and goes on with all of them for at most 30 iterations.
        """
        self._check_parameters()
        if is_parted(X):
            source = as_source(X, y) if self.missing == "refuse" else as_source(X, y).with_gaps()
            with all_or_nothing(self):
                self.open_classes_ = True
                return self._fit_source(with_workers(source) if is_dask(X) else source, sample_weight)
        if self.method is not None and (sample_weight is not None or self.class_weight is not None):
            raise ParameterError(f"weights are for method=None, not for {self.method!r}; leave them out")
        with all_or_nothing(self):
            X, y = self._checked(X, y, reset=True)
            self.open_classes_ = True
            if self.method is None:
                return self._fit_classes(X, y, checked_weights(sample_weight, X))
            if self.method != "fitc":
                expects(self.method, self.optimize is not None)
            self._start(X, np.unique(y))
            X, Y, rng = self._in_model_units(X), self._signs(y), generator(self.random_state)
            order = rng.permutation(len(X))
            X, Y = X[order], Y[order]
            if self.optimize is not None:
                self._learn(X, Y, rng, self.method)
            elif self.method == "fitc":
                basis = Points(self._places(X, self._size, rng))
                self._keep(self._propagate(X, Y, basis=basis, jitter=self.jitter))
            if self.method == "ep":
                self._keep(self._propagate(X, Y, capacity=self._size, score=self.removal_score))
            elif self.method == "online":
                self._read([prior(self._kernel)] * Y.shape[1], X, Y, stoppable=True)
            else:
                self.n_rows_ = len(X)
            self._held = None
        return self

    @stop_on_interrupt()
    def _fit_classes(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Self:
        """Learn kernel, basis and processes from all rows (method=None); equal rows are merged."""
        rng, n_rows = generator(self.random_state), len(X)
        if self.class_weight is not None:
            weights = weights * compute_sample_weight(self.class_weight, y)
        classes, codes = np.unique(y[weights > 0], return_inverse=True)
        given = np.flatnonzero(weights > 0)
        rows, weights = selection.merged_rows(np.column_stack([X[given], codes]), weights[given])
        X, y = np.ascontiguousarray(X[given[rows]]), classes[codes[rows]]
        self._start(X, classes, weights)
        X, Y = self._in_model_units(X), self._signs(y)
        used = None if np.all(weights == 1.0) else weights
        stage, signs = self._stage(X, Y, used, rng)
        if self.approximation == "neighbours":
            self._take(learn_along_neighbours(stage, signs), n_rows)
        else:
            self._take(learn_classes(stage, signs, self._other_kinds), n_rows)
        self.report_ = self.report_.named(classes).renumbered(given[rows])
        return self

    @stop_on_interrupt()
    def _fit_source(self, source: Source, sample_weight: Any) -> Self:
        """Learn from a sample of a source's rows, then from all of them."""
        weighted = sample_weight is not None or self.class_weight is not None
        near = self.approximation == "neighbours"
        if weighted or self.method is not None or near or self.device is not None or source.n_outputs != 1:
            needed = "one target and method=None, and no weights, neighbours or device"
            raise ParameterError(f"rows that come in parts need {needed}; give arrays")
        self._take_layout(source.layout)
        source, rng = prepared_source(self, source.cached())[0], generator(self.random_state)
        classes = source.total(Labels.of).values
        require_labels(classes)
        survey = outofcore.survey(source)
        sample, count = survey.sample, outofcore.judges(survey.sample, self.validation_fraction)
        labels = np.array([int(v) if float(v).is_integer() else v for v in classes])
        units = survey.moments.X.center_and_scale() if self.standardize else None
        few = slice(count, 2 * MANY_LABELS)
        self._start(sample.X[few], labels, units=units)
        coded = Coded(classes, self.x_mean_, self.x_scale_)
        rows = coded(sample.rows(0, None, True))
        X, Y = rows.X, self._signs(labels[np.asarray(rows.y, dtype=int)])
        learned = learn_classes_of(
            source.changed(coded),
            *self._stage(X[few], Y[few], None, rng),
            (X[:count], Y[:count]),
            float(sample.keys[count]) if count else 0.0,
            outofcore.SAMPLE_SEED,
            self._other_kinds,
        )
        self._take(learned, survey.moments.n)
        self.report_ = replace(self.report_.named(labels), surprises=())  # rows of a sample have no numbers
        return self

    def _stage(
        self, X: np.ndarray, Y: np.ndarray, weights: np.ndarray | None, rng: np.random.Generator
    ) -> tuple[Stage, Array]:
        """Return the stage that learning starts from, and the signs of its rows, on `device`."""
        basis = Points(self._places(X, self._size, rng))
        near = self.neighbours if self.approximation == "neighbours" else None
        row = approximation_of("fitc" if self.approximation == "auto" else self.approximation, None, near)
        used = None if weights is None else placed(weights, self.device)
        Xs, signs = placed(X, self.device), placed(Y, self.device)
        options: dict[str, Any] = dict(jitter=self.jitter, weights=used)
        P = problem_of(self._kernel, basis, row, self.likelihood_, Xs, signs[:, 0], **options)
        stage = Stage(
            P,
            optimize="hyperparameters" if self.optimize == "hyperparameters" else "all",
            fixed=self.fixed,
            priors=self._priors(),
            max_iterations=0 if self.optimize is None else self.max_iter,
            progress=True if self.verbose else None,
            rng=rng,
            validation_fraction=self.validation_fraction,
            prelude="all" if isinstance(self.inducing, str) and self.optimize is not None else "none",
        )
        return stage, signs

    def _take(self, learned: LearnedClasses | ClassesAlongNeighbours, n_rows: int) -> None:
        """Set the fitted attributes from what was learned from `n_rows` rows."""
        self.likelihood_, self._held = learned.likelihood, None
        self.n_iter_, self.n_rows_, self.report_ = max(1, learned.n_iterations), n_rows, learned.report
        if isinstance(learned, LearnedClasses):
            self._kernel = learned.posteriors[0].kernel
            return self._keep([post.to_numpy() for post in learned.posteriors])
        first, *others = learned.predictors
        self.posteriors_ = (first, *(other.beside(first) for other in others))  # they share rows and search
        self._kernel, self.basis_size_ = first.kernel, len(first.basis)
        self.log_evidence_ = learned.log_evidence

    def _priors(self) -> Any:
        """Return the priors given; without any, those on the lengthscales of a kernel that is not given."""
        if self.priors is not None or isinstance(self.kernel, Kernel):
            return given_priors(self.priors, self._kernel, self.x_scale_)
        lengths = {k: v for k, v in self._kernel.parameters.items() if k.endswith("lengthscale")}
        return {f"kernel.{k}": LogNormal(float(np.exp(np.mean(np.log(v)))), 2.0) for k, v in lengths.items()}

    def query(self, X: Any, n: int = 1) -> np.ndarray:
        """Return the n rows of X whose labels would teach the model most, best first. (n,) [004 §3.8.1]"""
        Xs = self._queries(X)
        self._refuse_along_neighbours("query")
        return most_informative_rows(self.posteriors_, self.likelihood_, Xs, n)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class at the rows of X, which may come in parts. (n, classes)"""
        check_is_fitted(self)
        if not is_parted(X):
            return probabilities_at(self.posteriors_, self.likelihood_, self._queries(X))
        parts = (self._in_model_units(part.X) for part in self._source(X).parts())
        return np.concatenate([probabilities_at(self.posteriors_, self.likelihood_, Xs) for Xs in parts])

    def predict(self, X: Any, reject_below: float | None = None, reject_label: Any = None) -> np.ndarray:
        """Return the most probable class of each row. (n,)

        With reject_below, rows whose most probable class has less than this probability get `reject_label`
        instead [004 Fig. 5.7], by default None; the result is then an array of objects.
        """
        p = self.predict_proba(X)
        labels = self.classes_[np.argmax(p, axis=1)]
        if reject_below is None:
            return labels
        require_in("reject_below", reject_below, "[0, 1]")
        labels = labels.astype(object)
        labels[np.max(p, axis=1) < reject_below] = reject_label
        return labels

    def _check_parameters(self) -> None:
        require_one_of("method", self.method, CLASSIFIER_METHODS)
        require_one_of("optimize", self.optimize, ("auto", "hyperparameters", "all", None))
        if self.optimize == "all" and self.method not in (None, "fitc"):
            raise ParameterError(f"optimize='all' moves the basis: for method='fitc', not {self.method!r}")
        require_count("n_inducing", self._size)
        require_count("max_iter", self.max_iter, 0)
        require_count("restarts", self.restarts, 0)
        require_in("validation_fraction", self.validation_fraction, "[0, 1)")

    def _saved_posterior(self) -> Posterior:
        if not hasattr(self, "posteriors_"):
            return super()._saved_posterior()
        return getattr(self.posteriors_[0], "posterior", self.posteriors_[0])

    def _more_to_record(self) -> tuple[Plain, Arrays]:
        plain, arrays = self._stream_record()
        more, further = class_record(self.classes_, self.posteriors_, self._held)
        plain |= {"log_evidence_of_y": self.log_evidence_, "open_classes": self.open_classes_}
        plain["report"] = self.report_.to_json() if hasattr(self, "report_") else None
        return plain | more, arrays | further

    def _restore(self, plain: Plain, arrays: Arrays, posterior: Posterior) -> None:
        self.log_evidence_ = number(plain["log_evidence_of_y"])
        self.open_classes_ = bool(plain.get("open_classes", False))
        if plain.get("report") is not None:
            self.report_ = ClassDiagnosis.from_json(plain["report"])
        self._restore_stream(plain, arrays, (), posterior)
        if not isinstance(self.likelihood_, Binary):
            raise ModelFileError(f"its likelihood {self.likelihood_} is not for classes")
        self.classes_, self.posteriors_, self._held = restored_classes(plain, arrays, posterior, self._held)

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Check rows to learn from and return their inputs, with gaps filled if wanted, and labels."""
        X, y = self._validated(X, y, reset=reset)
        require_labels(y)
        if reset:
            self.kinds_ = ONLY_NUMBERS if self.method is not None else kinds_of(self, X)
        if self.missing == "drop":
            needed = "use missing='use', or drop the rows first"
            raise ParameterError(f"a classifier drops no rows with gaps itself; {needed}")
        if self.method is not None and self.categorical is not None:
            raise ParameterError(f"categorical= needs method=None, not {self.method!r}")
        return as_inputs(self.kinds_.inputs(X) if self.missing == "use" else X), y

    def _start(
        self, X: np.ndarray, classes: np.ndarray, weights: np.ndarray | None = None, units: Any = None
    ) -> None:
        """Set labels, units, likelihood and starting kernel, before anything is learned."""
        if len(classes) < 2:
            one = classes[:1].tolist()[0]
            raise LabelError(f"a classifier needs two classes or more, but y has one class, {one!r}")
        likelihood = binary_likelihood(self.likelihood)
        weights = np.ones(len(X)) if weights is None else weights
        self.x_mean_, self.x_scale_ = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if self.standardize:
            units = center_and_scale(X, weights) if units is None else units
            self.x_mean_, self.x_scale_ = self.kinds_.in_place(*units)
        given = None if self._other_kinds else self.kernel
        self._kernel = start_kernel(
            given_kernel(given, self.x_scale_, self.x_mean_, self.kinds_),
            self._in_model_units(X),
            np.ones(len(X)),
            4.0 if self.method is None else 1.0,
            self.ard,
            self.kinds_,
        )
        if isinstance(self.kernel, Kernel):
            warned(self._kernel, self._in_model_units(X))
        self.classes_, self.likelihood_, self.n_iter_, self.n_rows_ = classes, likelihood, 1, 0
        self._adapt()
        for name in ("metadata_", "report_"):
            self.__dict__.pop(name, None)

    @property
    def _other_kinds(self) -> tuple[type[Stationary], ...]:
        return (Matern52, Matern32) if isinstance(self.kernel, str) and self.kernel == "auto" else ()

    def _signs(self, y: np.ndarray) -> np.ndarray:
        """Return +1 for the class of a posterior, else -1. (n, 1) for two classes, else (n, classes)"""
        known = np.isin(y, self.classes_)
        if not np.all(known):
            row = int(np.argmin(known))
            label = y[row : row + 1].tolist()[0]
            raise LabelError(f"row {row} has the label {label!r}, which is not one of {self.classes_}")
        classes = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        return np.where(y[:, None] == classes, 1.0, -1.0)

    def _places(self, X: np.ndarray, m: int, rng: np.random.Generator) -> np.ndarray:
        """Return the places where the basis starts, in the model's units. (m, d)"""
        if not isinstance(self.inducing, str):
            return self._in_model_units(start_inducing(self.inducing, X.shape[1]))
        require_one_of("inducing", self.inducing, PLACING_RULES, " or an array")
        mixed = self.kinds_.codes or self.kinds_.way == "variances"  # then averages of rows are no inputs
        rule = "variance" if mixed and self.inducing == "kmeans" else self.inducing
        return selection.BY_NAME[rule](X, m, rng, kernel=self._kernel)

    def _keep(self, posts: Sequence[Posterior]) -> None:
        """Set the posteriors without EP's sites of the training rows, and their log evidence."""
        self.posteriors_ = tuple(replace(post, sites=None) for post in posts)
        self.basis_size_ = len(posts[0])
        values = [post.log_predictive if post.log_evidence is None else post.log_evidence for post in posts]
        known = [value for value in values if value is not None]
        self.log_evidence_ = float(sum(known)) if len(known) == len(values) else None
