"""`inducing demo`: fit a sparse GP to a one-dimensional toy."""

import time
from pathlib import Path
from typing import Annotated

from typer import Option

from .app import app, formatted, output_option, print_table, save_picture


@app.command()
def demo(
    out: Annotated[Path, output_option("The picture to write.")] = Path("inducing-demo.png"),
    seed: Annotated[int, Option(min=0, help="Seed of the data and the fit.")] = 0,
) -> None:
    """Fit a sparse GP to a one-dimensional toy, print how well it does and draw it."""
    from ..estimators.regressor import SparseGPRegressor
    from ..metrics import Scores
    from ..pictures import plots
    from ..progress import Line
    from ..sources import datasets

    X, y = datasets.toy1d(400, rng=seed)
    X_test, y_test = datasets.toy1d(400, rng=seed + 1)
    start = time.perf_counter()
    with Line(None) as progress:
        model = SparseGPRegressor(n_inducing=15, random_state=seed, progress=progress).fit(X, y)
    mean, std = model.predict(X_test, return_std=True)
    rows = {"training rows": f"{len(X)}", "inducing inputs": f"{model.basis_size_}"}
    rows |= formatted(Scores.of(y_test, mean, std**2, y).metrics())
    rows["seconds"] = f"{time.perf_counter() - start:.2f}"
    print_table("Sparse GP on a one-dimensional toy", rows)
    save_picture(lambda: plots.plot_predictions_1d(model, X, y), out)
