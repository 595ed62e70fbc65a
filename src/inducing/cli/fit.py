"""`inducing fit`: a sparse GP of a table as a model file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from ..errors import ColumnError, EmptyDataError, ModelFileError
from .app import (
    ApproximationOption,
    DropMissing,
    Exclude,
    Size,
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
    from pandas import DataFrame

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
    n_inducing: Size = 100,
    approximation: ApproximationOption = "fitc",
    basis: Annotated[str, Option(help="points, multiscale, or auto: by the kernel.")] = "auto",
    inducing: Annotated[
        str | None,
        Option(
            help="Where they start: kmeans, random, variance, information-gain, smola-bartlett, "
            "matching-pursuit or novelty; by default where a kernel learned from a few rows knows least."
        ),
    ] = None,
    kernel: StationaryKernel = "RBF",
    max_iter: Annotated[int, Option(min=0, help="Most iterations of the optimiser.")] = 1000,
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
    seed: Annotated[int, Option(help="Seed of the held-out rows and of the fit.")] = 0,
    checkpoint: Annotated[Path | None, Option(help="A file that a killed fit goes on from.")] = None,
    scheduler: Annotated[str | None, Option(help="Address of a Dask scheduler to read parts.")] = None,
    workers: Annotated[int | None, Option(min=1, help="Processes here that read parts.")] = None,
) -> None:
    """Fit a sparse GP to a table and save it. Ctrl-C ends the fit early and saves the best so far."""
    from ..estimators.regressor import SparseGPRegressor
    from ..model.table import TABLE

    if approximation in TABLE and TABLE[approximation].needs_data:
        raise ModelFileError(
            f"A file holds no data, which {approximation!r} needs to predict: choose another."
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
    start, share = time.perf_counter(), test_fraction
    in_parts = scheduler is not None or workers is not None or is_large(table)
    if in_parts:
        source, encoder = _source_of(table, target, exclude or [], drop_missing)
        with _on_cluster(source, scheduler, workers) as source:
            scores = _fit_source(model, source, share)
    else:
        X, y, encoder = inputs_and_target(table, target, exclude, drop_missing)
        scores = _fit_rows(model, X, y, share)
    seconds, result = time.perf_counter() - start, model.fit_result_
    metrics = scores.metrics() if scores.rows else {}
    metadata = {"target": target, "encoder": encoder.to_json(), "held_out": metrics}
    if in_parts:
        metadata["evaluations"] = {"count": result.n_evaluations, "seconds": result.seconds}
    model.save(out, metadata)
    inputs = f"{len(encoder.columns)} columns, {len(encoder.feature_names)} features"
    how = "converged" if result.converged else "stopped early"
    rows = {"training rows": f"{model.n_rows_}", "inputs": inputs, "basis functions": f"{model.basis_size_}"}
    rows |= {"log evidence": f"{model.log_evidence_:.6g}", "noise std": noise_std(model)}
    rows["iterations"] = f"{model.n_iter_}, {how}"
    if in_parts:
        each = result.seconds / max(result.n_evaluations, 1)
        rows["evaluations over all rows"] = f"{result.n_evaluations}, {each:.2g} s each"
    rows["seconds"] = f"{seconds:.2f}"
    if metrics:
        rows |= {"held-out rows": f"{scores.rows}"} | formatted(metrics)
    print_table(f"{target} from {table.name}", rows)
    typer.echo(str(model.report_))
    typer.echo(f"Model: {out} ({file_size(out)})")


def _fit_rows(model: SparseGPRegressor, X: DataFrame, y: np.ndarray, share: float) -> Scores:
    """Fit a model to a table without a share of its rows, at least one if it is not zero; score it there."""
    import numpy as np

    from ..metrics import Scores
    from ..progress import Line

    n, count = len(y), max(1, round(share * len(y))) if share > 0 else 0
    if n - count < 2:
        raise EmptyDataError(f"{n - count} of {n} rows are left to train on and two are needed: add rows.")
    test = np.zeros(n, dtype=bool)
    test[np.random.default_rng(model.random_state).permutation(n)[:count]] = True
    with Line(None) as progress:
        model.set_params(progress=progress).fit(X[~test], y[~test])
    if count == 0:
        return Scores()
    mean, std = model.predict(X[test], return_std=True)
    return Scores.of(y[test], mean, std**2, y[~test])


def _source_of(table: Path, target: str, exclude: list[str], drop_missing: bool) -> tuple[Source, Encoder]:
    """The rows of parquet files as a source, text columns encoded."""
    from ..sources.parquet import encoder_of, from_parquet

    if target in exclude:
        raise ColumnError(f"Column {target!r} is both the target and excluded; choose one.")
    columns = from_parquet(table, [target, *exclude])  # looks at the columns alone
    encoder = encoder_of(columns, list(columns.layout.feature_names or ()))
    return from_parquet(table, target, encoder=encoder, drop_missing=drop_missing), encoder


def _fit_source(model: SparseGPRegressor, source: Source, share: float) -> Scores:
    """Fit a model to a source without a share of its rows; score it there."""
    from ..metrics import Scores
    from ..progress import Line
    from ..sources.source import split

    train, test = split(source.cached(), share, model.random_state) if share > 0 else (source, None)
    with Line(None) as progress:
        model.set_params(progress=progress).fit(train.watched(progress.part))
        scores = Scores() if test is None else test.total(_scores, model.light())
    if test is not None and scores.rows == 0:
        raise EmptyDataError("No row was held out to measure the fit: raise --test-fraction, or set it to 0.")
    return scores


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
