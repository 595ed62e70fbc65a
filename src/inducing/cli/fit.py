"""`inducing fit`: a sparse GP of a table as a model file."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ..errors import (
    ColumnError,
    EmptyDataError,
    InducingWarning,
    ModelFileError,
    ParameterError,
    UnknownNameError,
)
from ..files.atomic import require_apart
from ..progress import stop_on_interrupt
from .app import (
    ApproximationOption,
    DropMissing,
    Exclude,
    StationaryKernel,
    Target,
    about_noise,
    app,
    file_size,
    formatted,
    inputs_and_target,
    is_large,
    output_option,
    print_table,
)

if TYPE_CHECKING:
    import numpy as np
    from pandas import DataFrame

    from ..estimators.classifier import SparseGPClassifier
    from ..estimators.regressor import SparseGPRegressor
    from ..metrics import Scores
    from ..sources.source import Part, Source
    from ..sources.tables import Encoder


@app.command()
def fit(
    table: Annotated[
        Path,
        Argument(
            help="CSV, TSV or parquet file, one row per observation; a folder or 'glob' of parquet files is "
            "read in parts."
        ),
    ],
    target: Target,
    out: Annotated[Path, output_option("The model file to write.")],
    task: Annotated[
        str | None,
        Option(
            help="regression or classification; by default the latter where the target is text or boolean."
        ),
    ] = None,
    likelihood: Annotated[
        str | None, Option(help="Of the target: poisson, studentt, gamma, …; for classes probit or logistic.")
    ] = None,
    further: Annotated[
        str | None,
        Option(help="The column a likelihood takes beside the target: exposure, trials, censoring."),
    ] = None,
    noise: Annotated[
        str | None, Option(help="learned or learned-jointly: error bars that follow the inputs.")
    ] = None,
    n_inducing: Annotated[
        int | None, Option("--n-inducing", "-m", min=1, help="Number of basis functions, of a sparse model.")
    ] = None,
    approximation: ApproximationOption = "auto",
    basis: Annotated[str, Option(help="points, multiscale, or auto: by the kernel.")] = "auto",
    inducing: Annotated[
        str | None,
        Option(
            help="Where they start: kmeans, random, variance, information-gain, smola-bartlett, "
            "matching-pursuit or novelty; by default where a kernel learned from a few rows knows least."
        ),
    ] = None,
    kernel: StationaryKernel = "auto",
    max_iter: Annotated[
        int | None, Option(min=0, help="Most iterations of the optimiser: 1000, or 100 for classes.")
    ] = None,
    full_iter: Annotated[
        int | None,
        Option(
            min=0,
            help="Iterations over all rows, where they are read in parts; --max-iter is of a sample. By "
            "default as many as gain something, at most 30.",
        ),
    ] = None,
    restarts: Annotated[int, Option(min=0, help="Further starts; the best is kept.")] = 0,
    exclude: Exclude = None,
    drop_missing: DropMissing = False,
    test_fraction: Annotated[
        float, Option(min=0.0, max=0.9, help="Share of rows held out to score the fit; 0 is none.")
    ] = 0.1,
    seed: Annotated[int, Option(min=0, help="Seed of the held-out rows and of the fit.")] = 0,
    checkpoint: Annotated[Path | None, Option(help="A file that a killed fit goes on from.")] = None,
    scheduler: Annotated[str | None, Option(help="Address of a Dask scheduler to read parts.")] = None,
    workers: Annotated[int | None, Option(min=1, help="Processes here that read parts.")] = None,
) -> None:
    """Fit a sparse GP to a table and save it. Ctrl-C ends the fit early and saves the best so far."""
    start, share = time.perf_counter(), test_fraction
    in_parts = scheduler is not None or workers is not None or is_large(table)
    _check(approximation, task, further, noise, in_parts)
    require_apart(out, table, checkpoint)
    if checkpoint is not None:
        require_apart(checkpoint, table)
    shared: dict[str, Any] = dict(
        kernel=None if kernel == "auto" else kernel, restarts=restarts, random_state=seed
    )
    shared |= {} if n_inducing is None else {"n_inducing": n_inducing}
    labelled = False
    metadata: dict[str, Any] = {"target": target} | ({} if further is None else {"further": further})
    if not in_parts:
        X, y, encoder = inputs_and_target(table, target, exclude, drop_missing, task=task, further=further)
        labelled = task == "classification" or y.dtype.kind != "f"
    model: SparseGPClassifier | SparseGPRegressor
    with stop_on_interrupt():
        if labelled:
            model = _classifier(approximation, inducing, likelihood, max_iter, shared)
            metrics, held = _fit_labels(model, X, y, share)
        else:
            model = _regressor(approximation, inducing, likelihood, max_iter, shared)
            model.set_params(basis=basis, noise=noise, full_iter=full_iter, checkpoint=checkpoint)
            if in_parts:
                source, encoder = _source_of(table, target, exclude or [], drop_missing)
                with _on_cluster(source, scheduler, workers) as source:
                    metrics, held = _fit_source(model, source, share)
                result = model.fit_result_
                metadata["evaluations"] = {"count": result.n_evaluations, "seconds": result.seconds}
            else:
                metrics, held = _fit_rows(model, X, y, share)
        model.save(out, metadata | {"encoder": encoder.to_json(), "held_out": metrics})
    inputs = f"{len(encoder.columns)} columns, {len(encoder.feature_names)} features"
    rows = {"training rows": f"{model.n_rows_}", "inputs": inputs} | _about(model)
    if "evaluations" in metadata:
        each = result.seconds / max(result.n_evaluations, 1)
        rows["evaluations over all rows"] = f"{result.n_evaluations}, {each:.2g} s each"
    rows["seconds"] = f"{time.perf_counter() - start:.2f}"
    if metrics:
        rows |= {"held-out rows": f"{held}"} | formatted(metrics)
    print_table(f"{target} from {table.name}", rows)
    if hasattr(model, "report_"):
        typer.echo(str(model.report_))
    typer.echo(f"Model: {out} ({file_size(out)})")


def _check(
    approximation: str, task: str | None, further: str | None, noise: str | None, in_parts: bool
) -> None:
    """Raise if these options do not go together, before any row is read."""
    from ..model.table import TABLE

    if approximation in TABLE and TABLE[approximation].own_block:
        raise ModelFileError(
            f"A file holds no data, which {approximation!r} needs to predict: choose another."
        )
    if task not in (None, "regression", "classification"):
        raise UnknownNameError(f"--task must be regression or classification, not {task!r}.")
    if noise not in (None, "learned", "learned-jointly"):
        raise UnknownNameError(f"--noise must be learned or learned-jointly, not {noise!r}.")
    if in_parts and (task == "classification" or further is not None):
        raise ParameterError("Rows in parts are for regression of one column: use inducing.fit from Python.")


def _regressor(
    approximation: str,
    inducing: str | None,
    likelihood: str | None,
    max_iter: int | None,
    shared: dict[str, Any],
) -> SparseGPRegressor:
    from ..estimators.regressor import SparseGPRegressor

    most = 1000 if max_iter is None else max_iter
    return SparseGPRegressor(
        approximation=approximation, inducing=inducing, likelihood=likelihood, max_iter=most, **shared
    )


def _classifier(
    approximation: str,
    inducing: str | None,
    likelihood: str | None,
    max_iter: int | None,
    shared: dict[str, Any],
) -> SparseGPClassifier:
    from ..estimators.classifier import SparseGPClassifier

    return SparseGPClassifier(
        approximation=approximation,
        inducing=inducing or "kmeans",
        likelihood=likelihood or "probit",
        max_iter=100 if max_iter is None else max_iter,
        **shared,
    )


def _about(model: SparseGPClassifier | SparseGPRegressor) -> dict[str, str]:
    """What is worth knowing of a fitted model."""
    rows = {"basis functions": f"{model.basis_size_}", "log evidence": f"{model.log_evidence_:.6g}"}
    if hasattr(model, "classes_"):
        shown = ", ".join(map(str, model.classes_))
        return {"classes": shown} | rows | {"iterations": f"{model.n_iter_}"}
    how = "converged" if model.fit_result_.converged else "stopped early"
    return rows | about_noise(model) | {"iterations": f"{model.n_iter_}, {how}"}


def _held_out(n: int, share: float, seed: int) -> np.ndarray:
    """A share of n rows, at least one if it is not zero. (n,) of bool"""
    import numpy as np

    count = max(1, round(share * n)) if share > 0 else 0
    if n - count < 2:
        raise EmptyDataError(f"{n - count} of {n} rows are left to train on and two are needed: add rows.")
    test = np.zeros(n, dtype=bool)
    test[np.random.default_rng(seed).permutation(n)[:count]] = True
    return test


def _fit_rows(
    model: SparseGPRegressor, X: DataFrame, y: np.ndarray, share: float
) -> tuple[dict[str, float], int]:
    """Fit a model to a table without a share of its rows; the metrics there, and how many they are."""
    import numpy as np

    from ..metrics import Scores, smse
    from ..progress import Line

    test = _held_out(len(y), share, model.random_state)
    with Line(None) as progress:
        model.set_params(progress=progress).fit(X[~test], y[~test])
    seen, held = (y if y.ndim == 1 else y[:, 0])[~test], y[test]

    def score() -> dict[str, float]:
        if model.likelihood_ is None:
            mean, std = model.predict(X[test], return_std=True)
            return Scores.of(held, mean, std**2, seen).metrics()
        first, further = (held, None) if held.ndim == 1 else (held[:, 0], held[:, 1])
        low, high = model.predict_quantiles(X[test], [0.025, 0.975], further).T
        return {
            "SMSE": smse(first, model.predict(X[test], further=further), seen),
            "NLPD": -float(np.mean(model.log_density(X[test], held))),
            "coverage of 95 %": float(np.mean((low <= first) & (first <= high))),
        }

    return _scored(score, len(held)), len(held)


def _scored(score: Callable[[], dict[str, float]], rows: int) -> dict[str, float]:
    """The metrics of held-out rows, none of no rows; where they fail a warning: the model is worth more."""
    try:
        return score() if rows else {}
    except (ValueError, ArithmeticError, OSError) as error:
        warnings.warn(f"the held-out rows cannot be scored: {error}", InducingWarning, stacklevel=2)
        return {}


def _fit_labels(
    model: SparseGPClassifier, X: DataFrame, y: np.ndarray, share: float
) -> tuple[dict[str, float], int]:
    """Fit a classifier to a table without a share of its rows; error and log loss there, and how many."""
    import numpy as np

    test = _held_out(len(y), share, model.random_state)
    model.fit(X[~test], y[~test])
    known = test & np.isin(y, model.classes_)

    def score() -> dict[str, float]:
        p, own = model.predict_proba(X[known]), np.searchsorted(model.classes_, y[known])
        loss = -np.mean(np.log(np.maximum(p[np.arange(len(p)), own], 1e-300)))
        return {"error in %": float(np.mean(p.argmax(axis=1) != own)), "log loss": float(loss)}

    return _scored(score, int(known.sum())), int(known.sum())


def _source_of(table: Path, target: str, exclude: list[str], drop_missing: bool) -> tuple[Source, Encoder]:
    """The rows of parquet files as a source, text columns encoded."""
    from ..sources.parquet import encoder_of, from_parquet

    if target in exclude:
        raise ColumnError(f"Column {target!r} is both the target and excluded; choose one.")
    columns = from_parquet(table, [target, *exclude])  # looks at the columns alone
    encoder = encoder_of(columns, list(columns.layout.feature_names or ()))
    return from_parquet(table, target, encoder=encoder, drop_missing=drop_missing), encoder


def _fit_source(model: SparseGPRegressor, source: Source, share: float) -> tuple[dict[str, float], int]:
    """Fit a model to a source without a share of its rows; the metrics there, and how many they are."""
    from ..metrics import Scores
    from ..progress import Line
    from ..sources.source import split

    train, test = split(source.cached(), share, model.random_state) if share > 0 else (source, None)
    with Line(None) as progress:
        model.set_params(progress=progress).fit(train.watched(progress.part))
        scores = Scores()

        def score() -> dict[str, float]:
            nonlocal scores
            assert test is not None
            scores = test.total(_scores, model.light())
            if scores.rows == 0:
                raise EmptyDataError("none was held out; raise --test-fraction, or set it to 0")
            return scores.metrics()

        return _scored(score, test is not None), scores.rows


@contextmanager
def _on_cluster(source: Source, scheduler: str | None, workers: int | None) -> Iterator[Source]:
    """Spread the source over a scheduler's cluster or so many local workers, where that is asked for."""
    if scheduler is None and workers is None:
        yield source
        return
    from ..sources.distributed import cluster, spread

    with cluster(scheduler, workers, dashboard=True) as client:
        yield spread(source, client)


def _scores(part: Part, model: SparseGPRegressor) -> Scores:
    from ..estimators.base import predict_rows
    from ..metrics import Baseline, Scores

    if len(part.X) == 0:
        return Scores()
    mean, std = predict_rows(part, model, return_std=True)
    return Scores.of(part.Y[:, 0], mean, std**2, Baseline(model.y_mean_, model.y_scale_**2))
