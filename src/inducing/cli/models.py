"""`inducing demo`, `fit`, `predict`, `inspect`: models of tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ColumnError, EmptyDataError, ModelFileError
from . import large
from .app import app, output_option, print_table, progress_line, show

if TYPE_CHECKING:
    import numpy as np
    from pandas import DataFrame

    from ..estimators.regressor import SparseGPRegressor
    from ..sources.tables import Encoder

Model = typer.Argument(metavar="MODEL", help="Model file written by `inducing fit`.")


@app.command()
def demo(
    out: Annotated[Path, output_option("The picture to write.")] = Path("inducing-demo.png"),
    seed: Annotated[int, typer.Option(help="Seed of the data and the fit.")] = 0,
) -> None:
    """Fit a sparse GP to a one-dimensional toy, print how well it does and draw it."""
    from ..estimators.regressor import SparseGPRegressor
    from ..pictures import plots
    from ..sources import datasets

    X, y = datasets.toy1d(400, rng=seed)
    X_test, y_test = datasets.toy1d(400, rng=seed + 1)
    start = time.perf_counter()
    with progress_line() as progress:
        model = SparseGPRegressor(n_inducing=15, random_state=seed, progress=progress).fit(X, y)
    rows = {"training rows": f"{len(X)}", "inducing inputs": f"{model.basis_size_}"}
    rows |= formatted(held_out_metrics(model, X_test, y_test, y))
    rows["seconds"] = f"{time.perf_counter() - start:.2f}"
    print_table("Sparse GP on a one-dimensional toy", rows)
    try:
        plots.save(plots.plot_predictions_1d(model, X, y), out)
    except ModuleNotFoundError as error:
        typer.echo(f"No picture was drawn. {error}")
    else:
        typer.echo(f"Picture: {out}")


@app.command()
def fit(
    table: Annotated[
        Path,
        typer.Argument(
            help="CSV, TSV or parquet file, one row per observation; a folder or 'glob' of parquet files is "
            "read in parts."
        ),
    ],
    target: Annotated[
        str, typer.Option("--target", "-t", help="The column to predict; the others are the inputs.")
    ],
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
            "matching-pursuit or novelty;"
            " by default where a kernel learned from a few rows knows least."
        ),
    ] = None,
    kernel: Annotated[
        str, typer.Option(help="RBF, Matern12, Matern32, Matern52 or RationalQuadratic.")
    ] = "RBF",
    max_iter: Annotated[int, typer.Option(min=0, help="Most iterations of the optimiser.")] = 1000,
    full_iter: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Iterations over all rows, where they are read in parts; --max-iter is of a sample. By "
            "default as many as gain"
            " something, at most 30.",
        ),
    ] = None,
    restarts: Annotated[
        int, typer.Option(min=0, help="Further starts of the optimiser; the best one is kept.")
    ] = 0,
    exclude: Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")] = None,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Leave out rows with missing values.")
    ] = False,
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
    start = time.perf_counter()
    if scheduler is not None or workers is not None or large.is_large(table):
        source, encoder = large.source_of(table, target, exclude or [], drop_missing)
        with large.on_cluster(source, scheduler, workers) as rows_in_parts, progress_line() as progress:
            model.set_params(progress=progress)
            n, n_test, metrics = large.fit_parts(model, rows_in_parts, test_fraction, seed, progress.part)
        evaluations = {"count": model.fit_result_.n_evaluations, "seconds": model.fit_result_.seconds}
    else:
        X, y, encoder = inputs_and_target(table, target, exclude or [], drop_missing)
        test = held_out(len(y), test_fraction, seed)  # (n,) of bool
        with progress_line() as progress:
            model.set_params(progress=progress).fit(X[~test], y[~test])
        n, n_test = int((~test).sum()), int(test.sum())
        metrics = held_out_metrics(model, X[test], y[test], y[~test]) if n_test else {}
        evaluations = None
    seconds = time.perf_counter() - start
    metadata = {"target": target, "encoder": encoder.to_json(), "held_out": metrics}
    model.save(out, metadata=metadata if evaluations is None else metadata | {"evaluations": evaluations})

    features = len(encoder.feature_names)
    rows = {"training rows": f"{n}", "inputs": f"{len(encoder.columns)} columns, {features} features"}
    rows |= {"basis functions": f"{model.basis_size_}", "log evidence": f"{model.log_evidence_:.6g}"}
    rows |= {"noise std": _noise(model)}
    how = "converged" if model.fit_result_.converged else "stopped early"
    rows["iterations"] = f"{model.n_iter_}, {how}"
    if evaluations is not None:
        each = evaluations["seconds"] / max(evaluations["count"], 1)
        rows["evaluations over all rows"] = f"{evaluations['count']}, {each:.2g} s each"
    rows["seconds"] = f"{seconds:.2f}"
    if metrics:
        rows["held-out rows"] = f"{n_test}"
        rows |= formatted(metrics)
    print_table(f"{target} from {table.name}", rows)
    typer.echo(str(model.report_))
    typer.echo(f"Model: {out} ({file_size(out)})")


@app.command()
def predict(
    model: Annotated[Path, Model],
    table: Annotated[
        Path,
        typer.Argument(
            help="CSV, TSV or parquet file, folder or 'glob', with the model's input columns, in any order."
        ),
    ],
    out: Annotated[Path, output_option("The table to write: the given one and two columns more.")],
    allow_unseen: Annotated[
        bool,
        typer.Option("--allow-unseen", help="Take categories not seen in fitting as none of those known."),
    ] = False,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Leave the predictions empty in rows with missing inputs.")
    ] = False,
) -> None:
    """Add <target>_mean and <target>_std, of a new observation, to a table; for classes <target>_label and
    probabilities.
    """
    from ..sources import tables

    estimator = _load(model)
    encoder, target = _columns_of(estimator)

    def add(data: DataFrame) -> DataFrame:
        """The predictions for the rows of a table, none where inputs are missing."""
        tables.require_columns(data, encoder.columns)
        if not allow_missing:
            tables.require_complete(data, encoder.columns, "fill them in, or pass --allow-missing")
        rows = tables.complete_rows(data, encoder.columns)  # (n,) of bool
        said = _predictions(estimator, encoder.transform(data[rows], allow_unseen=allow_unseen), target)
        taken = [name for name in said.columns if name in data.columns]
        if taken:
            raise ColumnError(f"The table has a column {taken[0]!r} already: rename or remove it.")
        return said.set_index(data.index[rows]).reindex(data.index)

    with progress_line() as progress:
        done, rows = large.predict_parts(table, out, add, progress.part)
    typer.echo(f"Predictions: {out} ({done} of {rows} rows)")


def _predictions(estimator: Any, X: DataFrame, target: str) -> DataFrame:
    import pandas as pd

    queries = X if hasattr(estimator, "feature_names_in_") else X.to_numpy()
    if not hasattr(estimator, "classes_"):
        parts = estimator.predict(queries, return_std=True) if len(X) else ([], [])
        return pd.DataFrame({f"{target}_mean": parts[0], f"{target}_std": parts[1]}, dtype=float)
    names = [f"{target}={label}" for label in estimator.classes_]
    p = estimator.predict_proba(queries) if len(X) else None
    said = pd.DataFrame(p, columns=names, dtype=float)
    said.insert(0, f"{target}_label", [] if p is None else estimator.classes_[p.argmax(axis=1)])
    return said


@app.command()
def inspect(model: Annotated[Path, Model]) -> None:
    """Show what a model file holds: kernel, lengthscales by input, noise, basis, evidence."""
    estimator = _load(model)
    rows = {"file": f"{model} ({file_size(model)})", "model": type(estimator).__name__}
    if "target" in estimator.metadata_:
        rows["target"] = estimator.metadata_["target"]
    rows |= {"inputs": f"{estimator.n_features_in_}"} | _about(estimator)
    rows |= {
        f"held-out {name}": value
        for name, value in formatted(estimator.metadata_.get("held_out", {})).items()
    }
    print_table("Model", rows)
    _print_kernel(estimator)


def _about(estimator: Any) -> dict[str, str]:
    """What is worth knowing of each kind of model."""
    post = _posteriors(estimator)[0]
    rows = {"basis": f"{estimator.basis_size_} {type(post.basis).__name__}"}
    if hasattr(estimator, "approximation"):
        evidence = {"log evidence": f"{estimator.log_evidence_:.6g}", "noise std": _noise(estimator)}
        return {"approximation": estimator.approximation} | rows | evidence
    if hasattr(estimator, "classes_"):
        rows |= {"classes": ", ".join(map(str, estimator.classes_)), "method": estimator.method}
        if estimator.log_evidence_ is not None:
            rows["log evidence"] = f"{estimator.log_evidence_:.6g}"
    else:
        rows["log predictive density"] = f"{estimator.log_predictive_:.6g}"
        if estimator.noise_ is not None:
            rows["noise std"] = _noise(estimator)
    rows |= {"capacity": f"{estimator.capacity}", "likelihood": type(estimator.likelihood_).__name__}
    rows["rows read"] = f"{estimator.n_rows_}"
    if estimator.warming_up_:
        rows["warm-up"] = f"{estimator.n_rows_} of {estimator.warmup} rows: units and kernel are not settled"
    return rows | _about_stream(estimator.metadata_.get("stream"))


def _about_stream(stream: Any) -> dict[str, str]:
    """How a stream has gone, by what the model file says of it."""
    from ..streams import prequential

    if not isinstance(stream, dict):
        return {}
    kind = (
        prequential.RunningClassification if "wrong" in stream["metrics"] else prequential.RunningRegression
    )
    rows = {"rows refused": f"{stream['place']['refused']}"}
    return rows | {
        f"stream {name}": value for name, value in formatted(kind(**stream["metrics"]).values()).items()
    }


def _posteriors(estimator: Any) -> Any:
    return estimator.posteriors_ if hasattr(estimator, "posteriors_") else (estimator.posterior_,)


def inputs_and_target(
    table: Path, target: str, exclude: list[str], drop_missing: bool
) -> tuple[DataFrame, np.ndarray, Encoder]:
    """X (n, d), y (n,), and how the one came from the columns of a table that are neither target nor
    excluded.
    """
    import numpy as np

    from ..sources import tables
    from ..sources.tables import Encoder

    data = tables.read(table)
    tables.require_columns(data, [target, *exclude])
    data = data.drop(columns=exclude)
    if target not in data.columns:
        raise ColumnError(f"Column {target!r} is both the target and excluded; choose one.")
    data = complete_rows_of(data, drop_missing)
    encoder = Encoder.fit(data.drop(columns=target))
    X, y = encoder.transform(data), tables.numbers(data[target], target)
    if np.ptp(y) == 0:
        raise ColumnError(f"Column {target!r} is {y[0]:g} in every row: there is nothing to fit.")
    return X, y, encoder


def complete_rows_of(data: DataFrame, drop_missing: bool) -> DataFrame:
    from ..sources import tables

    if not drop_missing:
        tables.require_complete(
            data, data.columns, "fill them in, or pass --drop-missing to leave those rows out"
        )
    rows = tables.complete_rows(data, data.columns)  # (n,) of bool
    if not rows.any():
        raise EmptyDataError(f"All {len(data)} rows have missing values: exclude the columns that cause it.")
    if not rows.all():
        typer.echo(f"Left out {(~rows).sum()} of {len(data)} rows, which have missing values.")
    return data[rows]


def held_out(n: int, fraction: float, seed: int) -> np.ndarray:
    """A random mask of the rows held out, at least one when the fraction is not zero. (n,)"""
    import numpy as np

    count = max(1, round(fraction * n)) if fraction > 0 else 0
    if n - count < 2:
        raise EmptyDataError(f"{n - count} of {n} rows are left to train on and two are needed: add rows.")
    test = np.zeros(n, dtype=bool)
    test[np.random.default_rng(seed).permutation(n)[:count]] = True
    return test


def held_out_metrics(
    model: SparseGPRegressor, X: Any, y: np.ndarray, y_train: np.ndarray
) -> dict[str, float]:
    from .. import metrics

    mean, std = model.predict(X, return_std=True)
    return metrics.Scores.of(y, mean, std**2, y_train).metrics()


def formatted(metrics: dict[str, float]) -> dict[str, str]:
    return {
        name: f"{100 * value:.1f} %" if "%" in name else f"{value:.4f}" for name, value in metrics.items()
    }


def _load(path: Path) -> Any:
    """The estimator in a file, which must predict one target."""
    from ..files.models import load
    from ..model.posterior import Posterior

    model = load(path)
    if isinstance(model, Posterior) or not _posteriors(model)[0].one_output:
        raise ModelFileError(f"{str(path)!r} is no model of one target: use it from Python.")
    return model


def _columns_of(estimator: Any) -> tuple[Encoder, str]:
    """How a table becomes the model's inputs, and what it predicts; a model fitted in Python may know less."""
    from ..sources.tables import Encoder

    metadata = estimator.metadata_
    if "encoder" in metadata:
        return Encoder.from_json(metadata["encoder"]), metadata.get("target", "y")
    if hasattr(estimator, "feature_names_in_"):
        return Encoder(tuple(estimator.feature_names_in_)), metadata.get("target", "y")
    raise ModelFileError("The model knows no column names: fit it with `inducing fit`, or from a data frame.")


def _noise(estimator: Any) -> str:
    return "given row by row" if estimator.noise_ is None else f"{estimator.noise_**0.5:.4g}"


def file_size(path: Path) -> str:
    kibibytes = path.stat().st_size / 1024
    return f"{kibibytes:.1f} KiB" if kibibytes < 1024 else f"{kibibytes / 1024:.1f} MiB"


def _print_kernel(estimator: Any) -> None:
    """Each part of the kernel; its lengthscales input by input, the most relevant first."""
    import numpy as np
    from rich.table import Table

    d = estimator.n_features_in_
    try:
        names = _columns_of(estimator)[0].feature_names
    except ModelFileError:
        names = tuple(f"x{i + 1}" for i in range(d))
    scale = np.broadcast_to(estimator.x_scale_, d)  # (d,)
    for path, part in _parts(estimator.kernel_.spec()):
        numbers = ", ".join(f"{key} {value:.4g}" for key, value in part.items() if isinstance(value, float))
        table = Table("input")
        table.add_column("lengthscale", justify="right")
        table.add_column("in standard deviations", justify="right")
        columns = range(d) if part.get("columns") is None else part["columns"]
        if "lengthscale" in part:
            lengthscale = np.broadcast_to(part["lengthscale"], len(columns))
            for i in np.argsort(lengthscale, kind="stable"):
                j = columns[i]
                table.add_row(str(names[j]), f"{lengthscale[i] * scale[j]:.4g}", f"{lengthscale[i]:.4g}")
        show(f"Kernel {path}{part['name']}: {numbers}", table)


def _parts(spec: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The leaves of a kernel's spec with their paths: '0.', '1.0.'."""
    if "parts" not in spec:
        yield path, spec
    for i, part in enumerate(spec.get("parts", [])):
        yield from _parts(part, f"{path}{i}.")
