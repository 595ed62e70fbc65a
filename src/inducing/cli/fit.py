"""`inducing fit`: a sparse GP of a table as a model file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..errors import ColumnError, EmptyDataError, ModelFileError
from .app import (
    DropMissing,
    Exclude,
    StationaryKernel,
    Target,
    app,
    file_size,
    formatted,
    inputs_and_target,
    is_large,
    noise_std,
    output_option,
    print_table,
)

if TYPE_CHECKING:
    import numpy as np

    from ..estimators.regressor import SparseGPRegressor
    from ..metrics import Scores
    from ..sources.source import Part, Source
    from ..sources.tables import Encoder


@app.command()
def fit(
    table: Annotated[
        Path,
        typer.Argument(
            help="CSV, TSV or parquet file, one row per observation; a folder or 'glob' of parquet files is "
            "read in parts."
        ),
    ],
    target: Target,
    out: Annotated[Path, output_option("The model file to write.")],
    n_inducing: Annotated[
        int, typer.Option("--n-inducing", "-m", min=1, help="Number of basis functions.")
    ] = 100,
    approximation: Annotated[str, typer.Option(help="fitc, vfe, dtc, sor, pep, exact, …")] = "fitc",
    basis: Annotated[
        str, typer.Option(help="points, multiscale, or auto: multiscale for the RBF kernel.")
    ] = "auto",
    inducing: Annotated[
        str | None,
        typer.Option(
            help="Where they start: kmeans, random, variance, information-gain, smola-bartlett, "
            "matching-pursuit or novelty; by default where a kernel learned from a few rows knows least."
        ),
    ] = None,
    kernel: StationaryKernel = "RBF",
    max_iter: Annotated[int, typer.Option(min=0, help="Most iterations of the optimiser.")] = 1000,
    full_iter: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Iterations over all rows, where they are read in parts; --max-iter is of a sample. By "
            "default as many as gain something, at most 30.",
        ),
    ] = None,
    restarts: Annotated[
        int, typer.Option(min=0, help="Further starts of the optimiser; the best one is kept.")
    ] = 0,
    exclude: Exclude = None,
    drop_missing: DropMissing = False,
    test_fraction: Annotated[
        float,
        typer.Option(
            min=0.0, max=0.9, help="Share of the rows held out to measure the fit; 0 trains on all."
        ),
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the held-out rows and of the fit.")] = 0,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="A file that keeps the best point, and that a killed fit goes on from."),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, whose workers read the parts.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="So many worker processes on this machine read the parts.")
    ] = None,
) -> None:
    """Fit a sparse GP to a table and save it as a model file. Ctrl-C ends the fit early and saves the best so
    far.
    """
    from ..estimators.regressor import SparseGPRegressor
    from ..model.table import TABLE

    if approximation in TABLE and TABLE[approximation].own_block:
        raise ModelFileError(
            f"A model file holds no data, which {approximation!r} needs to predict: choose another."
        )
    model = SparseGPRegressor(
        kernel=kernel,
        approximation=approximation,
        n_inducing=n_inducing,
        basis=basis,
        inducing=inducing,
        restarts=restarts,
        max_iter=max_iter,
        full_iter=full_iter,
        random_state=seed,
        checkpoint=checkpoint,
    )
    rows = table, target, exclude or [], drop_missing
    if scheduler is not None or workers is not None or is_large(table):
        done = _fit_parts(model, *rows, test_fraction, scheduler, workers)
    else:
        done = _fit_rows(model, *rows, test_fraction)
    metadata = {"target": target, "encoder": done.encoder.to_json(), "held_out": done.metrics}
    model.save(out, metadata | done.more)
    _report(model, done, f"{target} from {table.name}")
    typer.echo(f"Model: {out} ({file_size(out)})")


class Done(NamedTuple):
    """A fit that is done."""

    encoder: Encoder
    held_out: int  # rows
    metrics: dict[str, float]  # of these
    seconds: float
    more: dict[str, Any] = {}  # for the file


def _fit_rows(
    model: SparseGPRegressor,
    table: Path,
    target: str,
    exclude: list[str],
    drop_missing: bool,
    test_fraction: float,
) -> Done:
    """Fit a model to a table without a share of its rows, and measure it there."""
    from ..metrics import Scores
    from ..progress import Line

    start = time.perf_counter()
    X, y, encoder = inputs_and_target(table, target, exclude, drop_missing)
    test = held_out(len(y), test_fraction, model.random_state)  # (n,) of bool
    with Line(None) as progress:
        model.set_params(progress=progress).fit(X[~test], y[~test])
    metrics = {}
    if test.any():
        mean, std = model.predict(X[test], return_std=True)
        metrics = Scores.of(y[test], mean, std**2, y[~test]).metrics()
    return Done(encoder, int(test.sum()), metrics, time.perf_counter() - start)


def held_out(n: int, fraction: float, seed: int) -> np.ndarray:
    """A random mask of the rows held out, at least one when the fraction is not zero. (n,)"""
    import numpy as np

    count = max(1, round(fraction * n)) if fraction > 0 else 0
    if n - count < 2:
        raise EmptyDataError(f"{n - count} of {n} rows are left to train on and two are needed: add rows.")
    test = np.zeros(n, dtype=bool)
    test[np.random.default_rng(seed).permutation(n)[:count]] = True
    return test


def _fit_parts(
    model: SparseGPRegressor,
    table: Path,
    target: str,
    exclude: list[str],
    drop_missing: bool,
    test_fraction: float,
    scheduler: str | None,
    workers: int | None,
) -> Done:
    """Fit a model to a table in parts without a share of its rows, and measure it there."""
    from ..progress import Line
    from ..sources.source import split
    from ..sources.tabular import encoder_of, from_parquet

    start = time.perf_counter()
    if target in exclude:
        raise ColumnError(f"Column {target!r} is both the target and excluded; choose one.")
    columns = from_parquet(table, [target, *exclude])  # looks at the columns alone
    encoder = encoder_of(columns, list(columns.layout.feature_names or ()))
    pieces = from_parquet(table, target, encoder=encoder, drop_missing=drop_missing)
    rows, metrics, test = 0, {}, None
    with _on_cluster(pieces, scheduler, workers) as train, Line(None) as progress:
        if test_fraction > 0:
            train, test = split(train.cached(), test_fraction, model.random_state)
        model.set_params(progress=progress).fit(train.watched(progress.part))
        if test is not None:
            scores = test.total(_scores, model.light())
            if scores.rows == 0:
                raise EmptyDataError(
                    "No row was held out to measure the fit: raise --test-fraction, or set it to 0."
                )
            rows, metrics = scores.rows, scores.metrics()
    evaluations = {"count": model.fit_result_.n_evaluations, "seconds": model.fit_result_.seconds}
    return Done(encoder, rows, metrics, time.perf_counter() - start, {"evaluations": evaluations})


@contextmanager
def _on_cluster(source: Source, scheduler: str | None, workers: int | None) -> Iterator[Source]:
    """The source on the cluster of that scheduler, or on so many local workers; as it is where neither is
    asked for.
    """
    if scheduler is None and workers is None:
        yield source
        return
    from ..sources.distributed import cluster, spread

    with cluster(scheduler, workers, dashboard=True) as client:
        yield spread(source, client)


def _scores(part: Part, model: SparseGPRegressor) -> Scores:
    from ..estimators.regressor import predict_rows
    from ..metrics import Baseline, Scores

    if len(part.X) == 0:
        return Scores()
    mean, std = predict_rows(part, model, return_std=True)
    return Scores.of(part.Y[:, 0], mean, std**2, Baseline(model.y_mean_, model.y_scale_**2))


def _report(model: SparseGPRegressor, done: Done, title: str) -> None:
    columns, features = len(done.encoder.columns), len(done.encoder.feature_names)
    how = "converged" if model.fit_result_.converged else "stopped early"
    rows = {
        "training rows": f"{model.n_rows_}",
        "inputs": f"{columns} columns, {features} features",
        "basis functions": f"{model.basis_size_}",
        "log evidence": f"{model.log_evidence_:.6g}",
        "noise std": noise_std(model),
        "iterations": f"{model.n_iter_}, {how}",
    }
    if "evaluations" in done.more:
        count, seconds = done.more["evaluations"].values()
        rows["evaluations over all rows"] = f"{count}, {seconds / max(count, 1):.2g} s each"
    rows["seconds"] = f"{done.seconds:.2f}"
    if done.metrics:
        rows |= {"held-out rows": f"{done.held_out}"} | formatted(done.metrics)
    print_table(title, rows)
    typer.echo(str(model.report_))
