"""`inducing stream`: fit a model to rows as they come, predicting each before learning from it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ..errors import ModelFileError, ParameterError, RenamedWarning, require_one_of
from .app import (
    Exclude,
    SizeIfAny,
    Target,
    app,
    file_size,
    in_existing_folder,
    output_option,
    print_table,
    show,
)

if TYPE_CHECKING:
    from ..streams.session import Session


def _is_writable(name: str | None) -> str | None:
    if name not in (None, "-"):
        in_existing_folder(Path(name))
    return name


@app.command()
def stream(
    source: Annotated[str, Argument(help="CSV, TSV or JSON lines file, or - for stdin.")],
    target: Target,
    out: Annotated[Path, output_option("The model file, written at every save.")],
    predictions: Annotated[
        str | None,
        Option(
            "--predictions",
            "-p",
            callback=_is_writable,
            help="CSV file, or - for stdout: what was predicted of each row before it was read.",
        ),
    ] = None,
    task: Annotated[str | None, Option(help="regression (the default) or classification.")] = None,
    n_inducing: SizeIfAny = None,
    capacity: Annotated[int | None, Option(min=1, hidden=True, help="The old name of --n-inducing.")] = None,
    kernel: Annotated[str | None, Option(help="RBF (the default), Matern32, Matern52, …")] = None,
    likelihood: Annotated[str | None, Option(help="gaussian, laplace, studentt, poisson; probit, …")] = None,
    noise: Annotated[float | None, Option(help="Variance of the noise to start from.")] = None,
    warmup: Annotated[
        int | None, Option(min=2, help="Rows that set units and kernel; 500 if not given.")
    ] = None,
    classes: Annotated[
        str | None, Option(help="All labels, such as a,b,c; else a label is learned when it comes.")
    ] = None,
    half_life: Annotated[
        str | None, Option(help="Rows after which what was read counts half, or auto; else nothing fades.")
    ] = None,
    on_drift: Annotated[
        str | None, Option(help="warn (the default), forget, reset or, of a regression, relearn.")
    ] = None,
    relearn: Annotated[int | None, Option(min=1, help="Rows until the kernel is learned again.")] = None,
    exclude: Exclude = None,
    format: Annotated[str, Option(help="csv, tsv, jsonl, or auto: by the first line.")] = "auto",
    save_rows: Annotated[int, Option(min=1, help="Rows between two saves of the model.")] = 10_000,
    save_seconds: Annotated[float, Option(min=0.1, help="Seconds between two saves of the model.")] = 30.0,
    resume: Annotated[bool, Option("--resume", help="Go on from the model file.")] = False,
    skip: Annotated[int | None, Option(min=0, help="Rows to skip; default: those read before.")] = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Wait at the end of a file for more.")] = False,
    strict: Annotated[bool, Option("--strict", help="Stop before the first bad row.")] = False,
    seed: Annotated[int, Option(min=0, help="Seed of the learning.")] = 0,
) -> None:
    """Learn from a stream, row by row: predict each row, then read it.

    Rows that cannot be used are refused with their numbers, from 1 on without the header, and leave the model
    as it was; after 20 they are counted. The exit code is 1 where nothing was learned. SIGINT, SIGTERM and
    SIGHUP save the model and end the stream.
    """
    from ..streams.session import Session

    given: dict[str, Any] = dict(task=task, kernel=kernel, likelihood=likelihood, noise=noise, warmup=warmup)
    given |= dict(n_inducing=n_inducing if capacity is None else capacity, classes=_labels(classes))
    given |= dict(half_life=_half_life(half_life), on_drift=on_drift, relearn=relearn)
    if capacity is not None:
        warnings.warn("--capacity is now --n-inducing", RenamedWarning, stacklevel=2)
    options = {name: value for name, value in given.items() if value is not None}
    if out.exists() and not resume:
        raise ModelFileError(f"{str(out)!r} exists: pass --resume to go on from it, or remove it.")
    if out.exists():
        session = Session.resumed(out)
        _check_same(session, {"target": target} | options)
    else:
        session = _begun(out, target, options, seed)
    session.strict, session.save_rows, session.save_seconds = strict, save_rows, save_seconds
    how: dict[str, Any] = {"format": format, "exclude": exclude or (), "skip": skip, "follow": follow}
    session.run(source, predictions=predictions, **how)
    _report(session, source, to_stderr=predictions == "-")
    if session.stopped_at is not None or not hasattr(session.model, "n_rows_"):
        raise typer.Exit(1)


def _labels(text: str | None) -> list[str] | None:
    labels = None if text is None else sorted({label.strip() for label in text.split(",")})
    if labels is not None and (len(labels) < 2 or "" in labels):
        raise ParameterError(f"--classes must name at least two labels, such as a,b, not {text!r}.")
    return labels


def _half_life(text: str | None) -> float | str | None:
    try:
        return text if text in (None, "auto") else float(text)
    except ValueError as error:
        raise ParameterError(f"--half-life must be a number of rows or auto, not {text!r}.") from error


def _begun(out: Path, target: str, options: dict[str, Any], seed: int) -> Session:
    from ..estimators.classifier import SparseGPClassifier
    from ..estimators.online import OnlineGPRegressor
    from ..streams.session import Session

    task = options.pop("task", "regression")
    require_one_of("--task", task, ("regression", "classification"))
    for name in set(options) & ({"classes"} if task == "regression" else {"noise", "relearn"}):
        raise ParameterError(f"--{name} has no meaning for a {task}: leave it out.")
    classes = options.pop("classes", None)
    if task == "regression":
        return Session.begun(out, target, OnlineGPRegressor(**options, random_state=seed))
    model = SparseGPClassifier(method="online", **options, random_state=seed)
    return Session.begun(out, target, model, classes)


def _check_same(session: Session, options: dict[str, Any]) -> None:
    """Raise if an option differs from that of the saved session."""
    has = {name: getattr(session.model, name, None) for name in options} | {
        "target": session.target,
        "task": "classification" if session.classifies else "regression",
        "classes": session.classes,
    }
    for name, value in options.items():
        if has[name] != value:
            model = f"The model in {str(session.out)!r} has {name} {has[name]}"
            raise ParameterError(f"{model}, not {value}: leave that as it was.")


def _report(session: Session, source: str, *, to_stderr: bool) -> None:
    model = session.model
    rows, end = {"rows read": f"{session.read}"}, "No model was made: no row could be used."
    if hasattr(model, "n_rows_"):
        rows |= {"rows read in all": f"{model.n_rows_}", "basis functions": f"{model.basis_size_}"}
        last = f", the last at row {model.drifts_[-1]}" if model.drifts_ else ""
        rows["drift alarms"] = f"{model.n_drifts_}{last}"
        end = f"Model: {session.out} ({file_size(session.out)})"
    rows["refused in all"] = f"{session.place.refused}"
    rows["predicted before read"] = f"{session.scores.rows}"
    rows |= {name: f"{value:.4f}" for name, value in session.scores.values().items()}
    rows["seconds"] = f"{session.status.seconds:.2f}"
    print_table(f"{session.target} from {source}", rows, to_stderr=to_stderr)
    show(end, to_stderr=to_stderr)
