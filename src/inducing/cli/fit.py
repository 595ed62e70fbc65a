"""`inducing fit`: fit a sparse GP to a table and save it as a model file."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from .. import errors
from ..files.atomic import require_apart
from ..progress import stop_on_interrupt
from . import app as shared
from .app import app
from .inspect import in_words

if TYPE_CHECKING:
    import numpy as np
    from pandas import DataFrame

    from ..estimators.classifier import SparseGPClassifier
    from ..estimators.regressor import SparseGPRegressor
    from ..metrics import Baseline, Scores
    from ..sources.source import Part, Source
    from ..sources.table_encoder import TableEncoder


@app.command()
def fit(
    table: Annotated[
        Path,
        Argument(
            help="CSV, TSV or parquet file, one row per observation; a folder or 'glob' of parquet files is "
            "read in parts."
        ),
    ],
    target: shared.Target,
    out: Annotated[Path, shared.output_option("The model file to write.")],
    task: shared.TaskOption = None,
    likelihood: Annotated[
        str | None, Option(help="Likelihood: poisson, studentt, gamma, …; for classes probit or logistic.")
    ] = None,
    further: Annotated[
        str | None,
        Option(help="The column a likelihood takes beside the target: exposure, trials, censoring."),
    ] = None,
    noise: Annotated[
        str | None, Option(help="learned or learned-jointly: error bars that follow the inputs.")
    ] = None,
    n_inducing: shared.SizeIfAny = None,
    approximation: shared.ApproximationOption = "auto",
    basis: Annotated[str, Option(help="points, multiscale, or auto: by the kernel.")] = "auto",
    inducing: Annotated[
        str | None,
        Option(
            help="Start of the basis: kmeans, random, variance, information-gain, smola-bartlett, "
            "matching-pursuit or novelty; by default where a kernel learned from a few rows knows least."
        ),
    ] = None,
    kernel: shared.StationaryKernel = "auto",
    max_iter: Annotated[int | None, Option(min=0, help="Iteration limit: 1000, or 100 of classes.")] = None,
    full_iter: Annotated[
        int | None,
        Option(min=0, help="Iterations over all rows in parts, where --max-iter is of a sample; 30 at most."),
    ] = None,
    restarts: Annotated[int, Option(min=0, help="Further random starts; the best is kept.")] = 0,
    exclude: shared.Exclude = None,
    category: shared.CategoryColumns = None,
    calendar: shared.CalendarParts = None,
    missing: shared.MissingMarks = None,
    drop_missing: shared.DropMissing = False,
    test_fraction: Annotated[float, Option(min=0.0, max=0.9, help="Share of rows held out.")] = 0.1,
    seed: Annotated[int, Option(min=0, help="Seed of the held-out rows and of the fit.")] = 0,
    checkpoint: Annotated[Path | None, Option(help="A file that a killed fit goes on from.")] = None,
    scheduler: Annotated[str | None, Option(help="Address of a Dask scheduler to read parts.")] = None,
    workers: Annotated[int | None, Option(min=1, help="Local processes that read parts.")] = None,
) -> None:
    """Fit a sparse GP to a table and save it. Ctrl-C ends the fit early and saves the best so far."""
    from ..estimators.classifier import SparseGPClassifier
    from ..estimators.regressor import SparseGPRegressor
    from ..sources.encoding import gaps_of
    from ..sources.tables import is_large

    start = time.perf_counter()
    in_parts = scheduler is not None or workers is not None or is_large(table)
    _check(approximation, task, noise)
    require_apart(out, table, checkpoint)
    if checkpoint is not None:
        require_apart(checkpoint, table)
    encoder = shared.encoder_for(missing, category, calendar, drop_missing, "use")
    given: dict[str, Any] = dict(n_inducing=n_inducing, inducing=inducing, likelihood=likelihood)
    given |= dict(kernel=None if kernel == "auto" else kernel, max_iter=max_iter)
    given = {name: value for name, value in given.items() if value is not None}
    given |= dict(approximation=approximation, restarts=restarts, random_state=seed, encoder=encoder)
    metadata: dict[str, Any] = {"target": target} | ({} if further is None else {"further": further})
    if in_parts:
        source, classes = _source_of(table, target, exclude or [], encoder, task, further)
        labelled = classes is not None
        given |= {"missing": "use"} if source.layout.gaps else {}
    else:
        X, y = shared.inputs_and_target(table, target, exclude, encoder, task=task, further=further)
        labelled = task == "classification" or y.dtype.kind != "f"
        if encoder.missing == "use" and any(gap.any() for gap in gaps_of(X, encoder.marks).values()):
            given["missing"] = "use"
    typer.echo(encoder.summary())
    model: SparseGPClassifier | SparseGPRegressor
    with stop_on_interrupt():
        if labelled:
            model = SparseGPClassifier(**given)
        else:
            given |= dict(basis=basis, noise=noise, full_iter=full_iter, checkpoint=checkpoint)
            model = SparseGPRegressor(**given)
        if in_parts:
            with _on_cluster(source, scheduler, workers) as source:
                metrics, held = _fit_source(model, source, test_fraction)
            if not labelled:
                result = model.fit_result_
                metadata["evaluations"] = {"count": result.n_evaluations, "seconds": result.seconds}
            elif classes is not None and len(classes):
                model.classes_ = classes[model.classes_]
                model.report_ = model.report_.named(model.classes_)
        else:
            metrics, held = _fit_rows(model, X, y, test_fraction)
        model.metadata_ = metadata | {"held_out": metrics, "held": held}
        model.save(out, model.metadata_)
    assert model.encoder_ is not None
    inputs = f"{len(model.encoder_.inputs)} columns, {model.n_features_in_} features"
    rows = {"training rows": f"{model.n_rows_}", "inputs": inputs} | _about(model)
    if "evaluations" in metadata:
        each = result.seconds / max(result.n_evaluations, 1)
        rows["evaluations over all rows"] = f"{result.n_evaluations}, {each:.2g} s each"
    rows["seconds"] = f"{time.perf_counter() - start:.2f}"
    if metrics:
        rows |= {"held-out rows": f"{held}"} | shared.formatted(metrics)
    shared.print_table(f"{target} from {table.name}", rows)
    typer.echo("\n".join([*in_words(model), str(model.report_)]))
    typer.echo(f"Model: {out} ({shared.file_size(out)})")


def _check(approximation: str, task: str | None, noise: str | None) -> None:
    """Raise if these options do not go together, before any row is read."""
    from ..model.table import TABLE

    if approximation in TABLE and TABLE[approximation].own_block:
        raise errors.ModelFileError(f"A file holds no data, which {approximation!r} needs: choose another.")
    errors.require_one_of("--task", task, ("regression", "classification", None))
    errors.require_one_of("--noise", noise, ("learned", "learned-jointly", None))


def _about(model: SparseGPClassifier | SparseGPRegressor) -> dict[str, str]:
    """Collect names and values about a fitted model for its report."""
    rows = {"basis functions": f"{model.basis_size_}", "log evidence": f"{model.log_evidence_:.6g}"}
    if hasattr(model, "classes_"):
        shown = ", ".join(map(str, model.classes_))
        return {"classes": shown} | rows | {"iterations": f"{model.n_iter_}"}
    how = "converged" if model.fit_result_.converged else "stopped early"
    return rows | shared.about_noise(model) | {"iterations": f"{model.n_iter_}, {how}"}


def _held_out(n: int, share: float, seed: int) -> np.ndarray:
    """Choose a random share of n rows, at least one unless it is 0. (n,) of bool"""
    import numpy as np

    count = max(1, round(share * n)) if share > 0 else 0
    if n - count < 2:
        raise errors.EmptyDataError(f"{n - count} of {n} rows are left to train on, and two are needed.")
    test = np.zeros(n, dtype=bool)
    test[np.random.default_rng(seed).permutation(n)[:count]] = True
    return test


def _fit_rows(
    model: SparseGPClassifier | SparseGPRegressor, X: DataFrame, y: np.ndarray, share: float
) -> tuple[dict[str, float], int]:
    """Fit a model to all but a share of a table's rows; return the metrics on these and their number."""
    from ..estimators.predictive import nameless
    from ..learning.diagnosis import Report
    from ..metrics import Baseline
    from ..progress import Line

    test, labelled = _held_out(len(y), share, model.random_state), hasattr(model, "class_weight")
    with Line(None) as progress, _numbered(X.index[~test]):
        (model if labelled else model.set_params(progress=progress)).fit(X[~test], y[~test])
    if isinstance(model.report_, Report):  # with the row numbers of the table
        model.report_ = model.report_.renumbered(X.index[~test])

    def score() -> tuple[dict[str, float], int]:
        assert model.encoder_ is not None
        encoder = copy(model.encoder_).set_params(allow_unseen=True)  # these rows may have new categories
        plain, rows = nameless(model), encoder.transform(X[test])
        if labelled:
            return _error_and_loss(_labels_scored(plain, rows, y[test]))
        seen = (y if y.ndim == 1 else y[:, 0])[~test]
        with _numbered(X.index[test]):
            return _metrics(_observed(plain, rows, y[test], Baseline(float(seen.mean()), float(seen.var()))))

    return _scored(score, bool(test.any()))


@contextmanager
def _numbered(rows: Any) -> Iterator[None]:
    """Turn the row numbers in errors of the block into those of the table, `rows` (n,)."""
    try:
        yield
    except errors.InducingError as error:
        error.args = (re.sub(r"\brow (\d+)", lambda match: f"row {rows[int(match[1])]}", str(error)),)
        raise


def _scored(score: Callable[[], tuple[dict[str, float], int]], some: bool) -> tuple[dict[str, float], int]:
    """Return the metrics of held-out rows and their number, none without `some` rows; only warn if scoring
    fails: the model is worth more.
    """
    try:
        return score() if some else ({}, 0)
    except (ValueError, ArithmeticError, OSError) as error:
        warnings.warn(f"the held-out rows cannot be scored: {error}", errors.InducingWarning, stacklevel=2)
        return {}, 0


def _labels_scored(model: SparseGPClassifier, X: Any, y: np.ndarray) -> np.ndarray:
    """Count the rows of known classes, those of them that are wrong, and add up their log loss. (3,)"""
    import numpy as np

    from ..streams.scores import RunningClassification

    known, scores = np.isin(y, model.classes_), RunningClassification()
    if known.any():
        scores.add(y[known], model.predict_proba(X[known]), model.classes_)
    return np.array([scores.rows, scores.wrong, scores.loss])


def _error_and_loss(scored: Iterable[float]) -> tuple[dict[str, float], int]:
    rows, wrong, loss = map(float, scored)
    return ({"error in %": wrong / rows, "log loss": loss / rows}, int(rows)) if rows else ({}, 0)


def _source_of(
    table: Path, target: str, exclude: list[str], encoder: TableEncoder, task: str | None, further: str | None
) -> tuple[Source, np.ndarray | None]:
    """Return the rows of files as an encoded source, and the labels that its targets number: None for
    regression, empty where the numbers themselves are the labels.
    """
    import numpy as np

    from ..sources.columns import listing, require_columns
    from ..sources.parquet import reading, require_in_files, survey_of, table_files

    targets = [target] if further is None else [target, further]
    files = table_files(table, encoder.marks, targets)[0]
    names = files.layout.feature_names or ()
    require_columns(names, [*targets, *exclude])
    if target in exclude:
        raise errors.ColumnError(f"Column {target!r} is both the target and excluded; choose one.")
    used = [name for name in names if name not in exclude]
    require_in_files(files, used)
    seen = survey_of(files, encoder, used)
    kind = shared.settle(encoder, seen, target, further, task)
    if kind != "number" and further is not None:
        raise errors.ParameterError(f"Classes take no further column, but --further is {further!r}.")
    gaps = {name: seen[name].missing for name in (*encoder.inputs, *targets)}  # type: ignore[union-attr]
    where = listing([f"{name} ({count})" for name, count in gaps.items() if count], quote=False)
    if encoder.missing == "use" and where:
        typer.echo(f"Values are missing in {where}: inputs are averaged over, rows without target left out.")
    counts = seen[target].counts  # type: ignore[union-attr]
    labels = None if kind == "number" else np.array(sorted(counts)) if counts else np.empty(0)
    if kind == "boolean" and not counts:
        labels = np.array([False, True])
    coded = tuple(sorted(counts)) if counts and kind != "number" else None
    y = target if further is None else targets
    dropping = encoder.missing == "drop" or bool(where)
    return reading(files, encoder, y, drop_missing=dropping, labels=coded), labels


def _fit_source(
    model: SparseGPClassifier | SparseGPRegressor, source: Source, share: float
) -> tuple[dict[str, float], int]:
    """Fit a model to all but a share of a source's rows; return the metrics on these and their number."""
    from ..estimators.predictive import nameless
    from ..progress import Line
    from ..sources.source import split

    train, test = split(source.cached(), share, model.random_state) if share > 0 else (source, None)
    labelled = hasattr(model, "class_weight")
    with Line(None) as progress:
        if not labelled:
            model.set_params(progress=progress)
        model.fit(train.watched(progress.part))

        def score() -> tuple[dict[str, float], int]:
            assert test is not None
            if labelled:
                metrics, held = _error_and_loss(test.total(_scores_of_labels, nameless(model)))
            else:
                metrics, held = _metrics(test.total(_scores, nameless(model.light())))
            if held == 0:
                raise errors.EmptyDataError("none was held out; raise --test-fraction, or set it to 0")
            return metrics, held

        return _scored(score, test is not None)


@contextmanager
def _on_cluster(source: Source, scheduler: str | None, workers: int | None) -> Iterator[Source]:
    """Spread the source over a scheduler's cluster or local workers, if either is given."""
    if scheduler is None and workers is None:
        yield source
        return
    from ..sources.distributed import cluster, spread

    with cluster(scheduler, workers, dashboard=True) as client:
        yield spread(source, client)


def _scores(part: Part, model: SparseGPRegressor) -> Scores:
    from ..metrics import Baseline, Scores

    if len(part.X) == 0:
        return Scores()
    y = part.Y[:, 0] if part.Y.shape[1] == 1 else part.Y
    return _observed(model, part.X, y, Baseline(model.y_mean_, model.y_scale_**2))


def _scores_of_labels(part: Part, model: SparseGPClassifier) -> np.ndarray:
    return _labels_scored(model, part.X, part.Y[:, 0])


def _observed(model: SparseGPRegressor, X: Any, y: np.ndarray, trivial: Baseline) -> Scores:
    """Score predictions of y (n,), or of y and the further numbers of the rows (n, 2)."""
    import numpy as np

    from ..metrics import Scores

    first, further = (y, None) if y.ndim == 1 else (y[:, 0], y[:, 1])
    new: Any = model.predict_distribution(X, further)
    if model.likelihood_ is None:
        return Scores.of(y, new.mean, new.std**2, trivial)
    low, high = new.interval(0.95).T
    wrong, trivially_wrong = first - new.mean, first - trivial.mean
    inside, loss = float(np.sum((low <= first) & (first <= high))), -float(np.sum(new.log_density(y)))
    squares = float(wrong @ wrong), float(trivially_wrong @ trivially_wrong)
    known = model.noise_posterior_ is not None  # learned noise is Gaussian, as the trivial predictor is
    trivial_loss = Scores.of(first, new.mean, new.std**2, trivial).loss_trivial if known else np.nan
    return Scores(len(first), *squares, loss, trivial_loss, inside)


def _metrics(scores: Scores) -> tuple[dict[str, float], int]:
    """Return the metrics that are defined, and their number of rows; MSLL needs Gaussian noise."""
    values = scores.metrics() if scores.rows else {}
    return {name: value for name, value in values.items() if value == value}, scores.rows
