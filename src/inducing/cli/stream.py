"""`inducing stream`: learn from rows as they come, predict each before it is read, keep the model safe on the
way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import DataNotFoundError, ModelFileError, ParameterError
from ..streams.rows import Format, Lines, fingerprint, stop_on_signals
from ..streams.session import Place, Predictions, Session
from .app import app, output_option

LABELS = typer.Option(help="All labels there will ever be, such as a,b,c; else those of the warm-up.")


@app.command()
def stream(
    source: Annotated[
        str, typer.Argument(help="CSV, TSV or JSON lines file, or - for stdin; one row a line.")
    ],
    target: Annotated[
        str, typer.Option("--target", "-t", help="The column to predict; the others are the inputs.")
    ],
    out: Annotated[Path, output_option("The model file, written at every save.")],
    predictions: Annotated[
        str | None,
        typer.Option(
            "--predictions", "-p", help="CSV file, or - for stdout: what was said of each row before it."
        ),
    ] = None,
    task: Annotated[str | None, typer.Option(help="regression (the default) or classification.")] = None,
    capacity: Annotated[
        int | None, typer.Option(min=1, help="Number of basis functions, at most; 100 if not given.")
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(help="RBF (the default), Matern12, Matern32, Matern52, …")
    ] = None,
    likelihood: Annotated[
        str | None,
        typer.Option(help="gaussian, laplace, studentt or poisson; for classes probit, logistic or step."),
    ] = None,
    noise: Annotated[
        float | None, typer.Option(help="Variance of the noise that learning starts from.")
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(min=2, help="Rows that set units and teach hyperparameters; 500 if not given."),
    ] = None,
    classes: Annotated[str | None, LABELS] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")] = None,
    format: Annotated[str, typer.Option(help="csv, tsv, jsonl, or auto: by the first line.")] = "auto",
    save_rows: Annotated[int, typer.Option(min=1, help="Save the model after so many rows.")] = 10_000,
    save_seconds: Annotated[
        float, typer.Option(min=0.1, help="Save it after so many seconds, if rows have come.")
    ] = 30.0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the model file, where there is one.")
    ] = False,
    skip: Annotated[
        int | None, typer.Option(min=0, help="Rows to pass over; else those already read from this file.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop before the first row that cannot be used.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the learning.")] = 0,
) -> None:
    """Learn from a stream, row by row: predict each row, then read it.

    Rows that cannot be used are refused with their numbers, from 1 on without the header, and leave the model
    as it was. SIGINT and SIGTERM save the model and end the stream.
    """
    given = {
        "task": task,
        "capacity": capacity,
        "kernel": kernel,
        "likelihood": likelihood,
        "noise": noise,
        "warmup": warmup,
        "classes": _labels(classes),
    }
    options = {name: value for name, value in given.items() if value is not None}
    if out.exists() and not resume:
        raise ModelFileError(f"{str(out)!r} exists: pass --resume to go on from it, or remove it.")
    with _opened(source) as fd, stop_on_signals() as stop:
        session = _resumed(out, target, options) if out.exists() else _begun(out, target, options, seed)
        session.strict, session.save_rows, session.save_seconds = strict, save_rows, save_seconds
        lines = Lines(fd, stop)
        session.format = _find_rows(session, lines, source, format, exclude or [], skip)
        with Predictions.opened(predictions, session.place.written) as session.predictions:
            session.follow(lines, stop)
    session.summarise(source, to_stderr=predictions == "-")
    if session.stopped_at is not None:
        raise typer.Exit(1)


@contextmanager
def _opened(source: str) -> Iterator[int]:
    if source == "-":
        yield sys.stdin.fileno()
        return
    if not Path(source).is_file():
        raise DataNotFoundError(f"There is no file {source!r}: check the name.")
    with open(source, "rb", buffering=0) as file:
        yield file.fileno()


def _begun(out: Path, target: str, options: dict[str, Any], seed: int) -> Session:
    from ..estimators.classifier import SparseGPClassifier
    from ..estimators.online import OnlineGPRegressor
    from ..streams import prequential

    task = options.get("task", "regression")
    if task not in ("regression", "classification"):
        raise ParameterError(f"The task must be regression or classification, not {task!r}.")
    foreign = "classes" if task == "regression" else "noise"
    if foreign in options:
        raise ParameterError(f"--{foreign} has no meaning for a {task}: leave it out.")
    parameters = {name: value for name, value in options.items() if name not in ("task", "classes")}
    if task == "regression":
        return Session(
            out, target, OnlineGPRegressor(**parameters, random_state=seed), prequential.RunningRegression()
        )
    model = SparseGPClassifier(method="online", **parameters, random_state=seed)
    return Session(out, target, model, prequential.RunningClassification(), options.get("classes"))


def _resumed(out: Path, target: str, options: dict[str, Any]) -> Session:
    """The session that saved a model file; an option that says otherwise is refused."""
    from ..files.models import load
    from ..streams import prequential

    model = load(out)
    state = getattr(model, "metadata_", {}).get("stream")
    if not isinstance(state, dict):
        raise ModelFileError(f"{str(out)!r} is no model of a stream: name another file.")
    labels = [str(label) for label in model.classes_] if hasattr(model, "classes_") else None
    has = {
        "target": model.metadata_.get("target"),
        "task": "regression" if labels is None else "classification",
    }
    has |= {"classes": labels} | {
        name: getattr(model, name, None) for name in ("capacity", "kernel", "likelihood", "noise")
    }
    has["warmup"] = model.warmup
    for name, value in ({"target": target} | options).items():
        if has[name] != value:
            raise ParameterError(
                f"The model in {str(out)!r} has {name} {has[name]}, not {value}: leave that as it was."
            )
    running = prequential.RunningRegression if labels is None else prequential.RunningClassification
    try:
        metrics, place = running(**state["metrics"]), Place(**state["place"])
    except (KeyError, TypeError) as error:
        raise ModelFileError(f"{str(out)!r} does not say where its stream stood ({error!r}).") from error
    return Session(out, target, model, metrics, labels, place)


def _labels(text: str | None) -> list[str] | None:
    labels = None if text is None else sorted({label.strip() for label in text.split(",")})
    if labels is not None and (len(labels) < 2 or "" in labels):
        raise ParameterError(f"--classes must name at least two labels, such as a,b, not {text!r}.")
    return labels


def _find_rows(
    session: Session, lines: Lines, source: str, kind: str, exclude: Sequence[str], skip: int | None
) -> Format:
    """The columns by the first line; then the first row that the model has not read."""
    place, path = session.place, None if source == "-" else str(Path(source).resolve())
    first = lines.one()
    format = Format.of(first, kind, session.target, exclude, session.inputs, session.classifies)
    if format.separator is None:
        lines.rest, first = first + lines.rest, b""
    if (
        path is not None
        and skip is None
        and path == place.source
        and fingerprint(lines.fd, place.offset) == place.head
    ):
        os.lseek(lines.fd, place.offset, os.SEEK_SET)
        lines.rest = b""
        typer.echo(f"inducing: going on after row {place.rows} of {source}", err=True)
        return format
    if path is not None:
        place.rows = 0
    place.source, place.offset = path, len(first)
    left = skip or 0
    while left and not (lines.ended or lines.stop.asked()):
        passed = lines.held() or lines.wait(60.0)
        lines.rest = b"".join(passed[left:]) + lines.rest
        place.offset += sum(map(len, passed[:left]))
        place.rows += min(left, len(passed))
        left -= min(left, len(passed))
    return format
