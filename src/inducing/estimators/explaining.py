"""`explain`: an HTML page about a fitted model, with everything its charts need."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConditionalError, ParameterError
from ..files.atomic import as_path, replacing
from ..model.compiled import heights
from ..model.kernels import leaves
from ..model.kernels.changed import OfFeatures
from ..model.posterior import Posterior
from ..pictures.page import packed, page, triangle_of
from .exporting import exported, processes_of, pruned_to, with_processes
from .judging import require_one_model
from .predictive import nameless

NUMBERS_ON_A_PAGE = 59_000  # doubles as text: the page stays under 700 kB
CHARACTERS = 630_000  # that the arrays of a page may take
MOST_IN_STEPS = 750  # basis functions up to which the browser makes the triangles itself, in a second
CHECKED = 200  # rows at which the triangles of a page are tried
DRAWN_PATHS, WAVES = 4, 128
LISTED, DEPENDENCES = 25, 12
EXPLAINED_ROWS, MOST_EXPLAINED = 60, 60  # rows that get Shapley values; inputs up to which they are shown


def explain(
    model: Any, path: str | Path, X: Any = None, y: Any = None, names: Sequence[str] | None = None
) -> int:
    """Write a page about a fitted model, and return its size in bytes.

    Calibration and surprising rows are those of a table X, y if it is given, else of the training rows, each
    left out, if the model has them; without either the page does not show them. `names` are the features'.
    """
    require_one_model(model, "Pages")
    path = as_path(path)
    whole, (model, pruned, triangles) = model, _small_enough(model)
    plain = exported(model)
    plain = plain if names is None else replace(plain, features=tuple(map(str, names)))
    post = model.posteriors_[0] if plain.classes else model.posterior_
    low, high = model.x_mean_ - 2.5 * model.x_scale_, model.x_mean_ + 2.5 * model.x_scale_
    sobol = None if plain.classes else _sobol(model)
    importance = model.relevance_ * model.x_scale_ if sobol is None else np.array(sobol["total"])
    order = np.argsort(-importance, kind="stable")
    scores = _known(lambda: post.removal_scores().tolist(), [0.0] * len(post))
    span = [0.0, 1.0] if plain.classes else [model.y_mean_ - model.y_scale_, model.y_mean_ + model.y_scale_]
    facts = {
        "target": str(getattr(model, "metadata_", {}).get("target", "y")),
        "lead": _lead(model, plain.kind, pruned, len(post)),
        "ranges": np.stack([low, high], axis=1),
        "middle": model.x_mean_,
        "order": order,
        "span": span,
        "lengthscales": _lengthscales(model),
        "sobol": sobol,
        "paths": None if plain.classes else _paths(model),
        "reasons": _reasons(whole, X),
        "dependence": _dependences(whole, X, order, plain.features),
        "kept": [(int(j), scores[j]) for j in np.argsort(-np.array(scores), kind="stable")[:LISTED]],
        "basiswords": f"The {min(len(post), LISTED)} of {len(post)} that would cost most to remove, in nats.",
        "parameters": _parameters(model),
        "report": str(model.report_) if hasattr(model, "report_") else "",
        "calibration": _calibration(whole, X, y),
        "surprises": [] if plain.classes else _known(lambda: whole.surprises(X, y), []),
    }
    text = page(plain, facts, triangles).encode()
    with replacing(path) as file:
        file.write_bytes(text)
    return len(text)


def _small_enough(model: Any) -> tuple[Any, int, list[dict[str, Any]] | None]:
    """Return the model with no more functions than a page can hold; how many it had, 0 if none were pruned;
    and, where doubles would be too many, the numbers to make the triangles of its processes from.
    """
    classes, d = hasattr(model, "classes_"), _inputs(model)
    posts = processes_of(model)
    bases = 1 if classes else len(posts)
    most = _most_functions(d, len(posts), bases)
    if not all(isinstance(post, Posterior) for post in posts) or max(map(len, posts)) <= most:
        return model, 0, None
    first = 1.0 if classes else float(model.noise_ or 0.0) / model.y_scale_**2
    noises = [first] + [1.0] * (len(posts) - 1)
    whole, size = max(map(len, posts)), min(MOST_IN_STEPS, max(map(len, posts)))
    while size > most:
        few = pruned_to(posts, size, shared=classes)
        triangles = _triangles(few, noises, shared=classes)
        if triangles is None:
            break
        length = sum(len(own.get("bits", "")) for own in triangles)
        room = CHARACTERS - int(10.7 * _numbers_beside(d, len(posts), bases, size))
        if length <= room:
            return with_processes(model, few), whole if size < whole else 0, triangles
        size = int(0.98 * size * np.sqrt(max(room, 0.0) / length))
    return with_processes(model, pruned_to(posts, most, shared=classes)), whole, None


def _triangles(posts: Sequence[Posterior], noises: Sequence[float], *, shared: bool) -> Any:
    """Return the numbers to make the triangles of all processes from; None if one has no such form."""
    if shared and not all(np.array_equal(post.L, posts[0].L) for post in posts):
        return None
    d = posts[0].basis.Z.shape[1] if hasattr(posts[0].basis, "Z") else 0
    X = 1.2 * np.random.default_rng(0).standard_normal((CHECKED, d))
    triangles = [triangle_of(post, noise, X) for post, noise in zip(posts, noises)]
    return None if any(own is None for own in triangles) else triangles


def _most_functions(d: int, processes: int, bases: int) -> int:
    """Return how many functions of d inputs fit on a page, with half a square of doubles per process."""
    none, one = (_numbers_beside(d, processes, bases, size) for size in (0, 1))
    left, linear = NUMBERS_ON_A_PAGE - none, 0.5 * processes + one - none
    return int((np.sqrt(linear**2 + 2.0 * processes * left) - linear) / processes)


def _numbers_beside(d: int, processes: int, bases: int, size: int) -> int:
    """Return how many numbers a page has beside the triangles: drawn functions, basis and scores."""
    return _waves(d) * (d + 1 + 2 * DRAWN_PATHS) + size * (4 * processes + bases * d + DRAWN_PATHS)


def _inputs(model: Any) -> int:
    """Return the number of a model's inputs plus the features that its kernel makes of them."""
    parts = [part for _, part in leaves(model.kernel_)]
    return model.n_features_in_ + sum(len(part.owners) for part in parts if isinstance(part, OfFeatures))


def _waves(d: int) -> int:
    """Return the number of waves in the drawn functions of a page: fewer for many inputs."""
    return min(WAVES, 12_000 // (d + 1))


def _lead(model: Any, kind: str, pruned: int, kept: int) -> str:
    """Return the first sentences of the page."""
    rows = _rows_of(model)
    words = f"{type(model).__name__}" + (f" of {rows:,} rows" if rows else "")
    words += f", {model.n_features_in_} inputs. All that is here the page computes from the model itself."
    if kind == "classes":
        words += " Lines are probabilities of classes."
    if pruned:
        words += f" Of {pruned} basis functions the page has the {kept} that matter most: it approximates."
    return words


def _rows_of(model: Any) -> int:
    """Return the number of rows the model was fitted to, 0 if it does not know."""
    return getattr(model, "n_rows_", 0) or len((getattr(model, "_rows", None) or ((),))[0])


def _sobol(model: Any) -> dict[str, Any] | None:
    if model.n_features_in_ > 60:  # they would take long, and so many bars would not help
        return None
    indices = _known(model.sobol_indices)
    names = ("first", "total", "first_std", "total_std")
    return None if indices is None else {name: getattr(indices, name) for name in names}


def _lengthscales(model: Any) -> list[float | None]:
    """Return the shortest lengthscale of each input in its units, None where the model ignores it."""
    return [1.0 / value if value > 0 else None for value in model.relevance_.tolist()]


def _paths(model: Any) -> dict[str, Any] | None:
    paths = _known(lambda: model.posterior_.paths(DRAWN_PATHS, 0, features=_waves(_inputs(model))))
    if paths is None:
        return None
    arrays = {"frequencies": paths.waves.frequencies, "amplitudes": paths.waves.amplitudes}
    arrays |= {"slopes": paths.waves.slopes, "weights": paths.weights}
    arrays |= {"coefficients": paths.coefficients * heights(paths.kernel, paths.basis)[:, None]}
    hats = np.zeros(_inputs(model) - len(model.x_mean_))
    arrays |= {"x_mean": np.append(model.x_mean_, hats), "x_scale": np.append(model.x_scale_, hats + 1.0)}
    return {"size": DRAWN_PATHS, "y": float(model.y_scale_)} | packed(arrays)


def _known(ask: Callable[[], Any], otherwise: Any = None) -> Any:
    """Return ask(), or `otherwise` if the model cannot answer."""
    try:
        return ask()
    except (ConditionalError, ParameterError):
        return otherwise


def _parameters(model: Any) -> list[tuple[str, str]]:
    """Return names and values of the model's parameters, lengthscales and noise in the user's units."""
    rows = [("kernel", type(model.kernel_).__name__)]
    rows += [(f"kernel {name}", _text(v)) for name, v in model.kernel_.parameters.items()]
    if getattr(model, "noise_", None) is not None:
        rows.append(("noise, standard deviation", _text(np.sqrt(model.noise_))))
    rows += [("approximation", str(model.approximation_))] if hasattr(model, "approximation_") else []
    rows += [("log evidence", _text(model.log_evidence_))] if model.log_evidence_ is not None else []
    rows += [("lengthscale of each input, in its units", _text([v or np.inf for v in _lengthscales(model)]))]
    units = ("mean of each input", _text(model.x_mean_)), ("scale of each input", _text(model.x_scale_))
    return [*rows, *units]


def _text(value: Any) -> str:
    return np.array2string(np.asarray(value, dtype=float), precision=6, separator=", ", threshold=40)


def _calibration(model: Any, X: Any, y: Any) -> dict[str, Any] | None:
    """Return reliability and PIT of a table or of left-out rows, with a sentence; None without either."""
    shares = _known(lambda: model.calibration(X, y))
    if shares is None:
        return None
    words = "Rows of the table given" if y is not None else "Rows fitted to, each predicted by the others"
    if shares.pit is None:
        words += f": on average {shares.error:.3f} between a class's probability and its share."
        return {"said": shares.levels, "seen": shares.observed, "pit": None, "words": words}
    inside = float(np.mean(np.abs(2.0 * shares.pit - 1.0) <= 0.95))
    words += f": {inside:.1%} of {len(shares.pit)} lie in their 95 % interval. A calibrated model is on the "
    words += f"diagonal, and its histogram is even (largest distance {shares.distance:.3f})."
    counts = np.histogram(shares.pit, bins=10, range=(0.0, 1.0))[0]
    pit = counts * 10.0 / max(len(shares.pit), 1)
    return {"said": shares.levels[None], "seen": shares.observed[None], "pit": pit, "words": words}


def _dependences(model: Any, X: Any, order: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return partial dependence on the most important inputs, for a classifier of the last probability."""
    dependences = _known(lambda: [model.partial_dependence(int(i), X) for i in order[:DEPENDENCES]], [])
    last = (slice(None), -1) if hasattr(model, "classes_") else slice(None)
    return [
        {"name": names[i], "values": _short(own.values), "mean": _short(own.mean[last])}
        | {"std": _short(own.std[last])}
        for i, own in zip(order, dependences)
        if np.ndim(own.mean[last]) == 1
    ]


def _reasons(model: Any, X: Any) -> dict[str, Any] | None:
    """Return Shapley values of some rows of a table or of the training rows, with each value's rank in its
    column; None without rows or values.
    """
    if X is None:  # the training rows are kept as numbers without names
        model, X = nameless(model), (getattr(model, "_rows", None) or (None,))[0]
    if X is None or hasattr(model, "classes_") or model.n_features_in_ > MOST_EXPLAINED:
        return None
    chosen = np.linspace(0, len(X) - 1, min(len(X), EXPLAINED_ROWS)).astype(int)
    parts = _known(lambda: model.shapley(X.iloc[chosen] if hasattr(X, "iloc") else np.asarray(X)[chosen]))
    if parts is None or parts.values.ndim != 2 or parts.values.shape[1] != model.n_features_in_:
        return None
    order = np.argsort(-np.mean(np.abs(parts.values), axis=0), kind="stable")[:LISTED]
    ranks = np.argsort(np.argsort(parts.X, axis=0, kind="stable"), axis=0) / max(len(chosen) - 1, 1)
    columns = [
        {"input": int(j), "shares": _short(parts.values[:, j]), "ranks": np.round(ranks[:, j], 2).tolist()}
        for j in order
    ]
    return {"rows": len(chosen), "baseline": float(np.mean(parts.baseline)), "columns": columns}


def _short(a: np.ndarray) -> list[float]:
    """Return numbers of seven digits, which are enough for a picture."""
    return [float(f"{v:.7g}") for v in a.tolist()]


def card(model: Any) -> str:
    """Return a fitted model as an HTML table for notebooks: rows, parameters, report; else ""."""
    if not hasattr(model, "basis_size_"):
        return ""
    if getattr(model, "models_", None) is not None:
        return "".join(map(card, model.models_))
    rows = [("rows, inputs", f"{_rows_of(model) or 'not known'}, {model.n_features_in_}")]
    rows += [("basis functions", str(model.basis_size_)), *_parameters(model)]
    report = f"<pre>{escape(str(model.report_))}</pre>" if hasattr(model, "report_") else ""
    left = "style='text-align:left'"
    cell = f"<tr><th {left}>%s</th><td {left}>%s</td></tr>"
    cells = "".join(cell % (escape(name), escape(value)) for name, value in rows)
    return f"<details open><summary>What was learned</summary><table>{cells}</table>{report}</details>"
