"""`inducing watch`: animate the optimisation of a basis."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from . import app as shared
from .app import app


@app.command()
def watch(
    table: Annotated[Path | None, Argument(help="Table with one or two inputs; default: a toy.")] = None,
    target: Annotated[str | None, Option("--target", "-t", help="The column to predict.")] = None,
    out: Annotated[Path, shared.output_option("The animation to write, .gif or .html.")] = Path("watch.gif"),
    basis: Annotated[str, Option(help="points or multiscale.")] = "points",
    approximation: shared.ApproximationOption = "fitc",
    n_inducing: shared.Size = 8,
    start: Annotated[str, Option(help="Start of the basis: left, kmeans, random, …")] = "kmeans",
    recipe: Annotated[str | None, Option(help="direct, auto, …; else all at once.")] = None,
    hold: Annotated[bool, Option("--hold", help="Hold kernel and noise at an exact GP's.")] = False,
    frames: Annotated[int, Option(min=2, help="Frame limit.")] = 60,
    fps: Annotated[int, Option(min=1, max=50, help="Frames per second.")] = 12,
    max_iter: Annotated[int, Option(min=1, help="Iteration limit of the optimiser.")] = 200,
    exclude: shared.Exclude = None,
    category: shared.CategoryColumns = None,
    calendar: shared.CalendarParts = None,
    missing: shared.MissingMarks = None,
    drop_missing: shared.DropMissing = False,
    seed: Annotated[int, Option(min=0, help="Seed of the start, and of the toy.")] = 0,
) -> None:
    """Animate a fit: its moving basis functions, predictions and evidence. Ctrl-C ends it early."""
    from ..learning import recipes
    from ..pictures import animation, plots
    from ..progress import Line
    from ..sources import datasets

    if out.suffix.lower() not in animation.FILM_SUFFIXES:
        raise typer.BadParameter(f"{str(out)!r} must end in one of {' '.join(animation.FILM_SUFFIXES)}")
    if recipe is None:
        recipe = "vsgp-full" if basis == "multiscale" and approximation == "fitc" else "direct"
    path = recipes.recipe_for(recipe)
    plots.canvas(1, 1)  # raise now if matplotlib is missing
    names: tuple[str, ...] = ("x",)
    if table is None:
        X, y = datasets.toy1d(200, rng=seed)
    elif target is None:
        raise typer.BadParameter("a table needs --target, the column to predict")
    else:
        encoder = shared.encoder_for(missing, category, calendar, drop_missing)
        data, y = shared.inputs_and_target(table, target, exclude, encoder)
        X, names = encoder.transform(data), tuple(encoder.get_feature_names_out())
    animation.require_few_inputs(X)
    with Line(None) as progress:
        task = animation.task_for(
            X,
            y,
            approximation=approximation,
            n_inducing=n_inducing,
            basis=basis,
            start=start,
            max_iterations=max_iter,
            rng=seed,
        )
        if hold:
            task = replace(recipes.with_exact_hyperparameters(task), fixed=("kernel", "noise", "mean"))
        recording = animation.record(replace(task, progress=progress), path)
    animation.animate(recording, frames=frames, names=names, target=target or "y").save(out, fps=fps)
    first, last = recording.posterior(0).log_evidence, recording.posterior(-1).log_evidence
    iterations = sum(step.iteration > 0 for step in recording.steps)
    rows = {"rows": f"{len(y)}", "basis functions": f"{len(task.basis)}", "iterations": f"{iterations}"}
    rows |= {"log evidence at the start": f"{first:.6g}", "at the end": f"{last:.6g}"}
    shared.print_table(f"{target or 'toy'}: {approximation}, {recipe}", rows)
    typer.echo(f"Animation: {out}")
