"""`explain`: what a fitted model knows, gathered for a page to look at."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from ..errors import ConditionalError, ParameterError
from ..files.atomic import replacing
from ..model.posterior import Posterior
from ..pictures.page import packed, page
from .exporting import exported

MOST_ON_A_PAGE = 250  # basis functions: the page stays under 700 kB
DRAWN_PATHS, WAVES = 4, 256
SURPRISES, LISTED = 10, 25
LEVELS = np.linspace(0.1, 0.95, 18)  # of intervals


def explain(
    model: Any, path: str | Path, X: Any = None, y: Any = None, names: Sequence[str] | None = None
) -> int:
    """Write a page about a fitted model, and return its size in bytes.

    Calibration and surprising rows are those of the rows fitted to, each left out, or of a table X, y that is
    given, where the fit is at hand; without either the page leaves them out. `names` are the features'.
    """
    model, pruned = _small_enough(model)
    plain = exported(model)
    plain = plain if names is None else replace(plain, features=tuple(map(str, names)))
    post = model.posteriors_[0] if plain.classes else model.posterior_
    low, high = model.x_mean_ - 2.5 * model.x_scale_, model.x_mean_ + 2.5 * model.x_scale_
    sobol = None if plain.classes else _sobol(model)
    lengthscales = _lengthscales(model)
    by = np.array(lengthscales) / model.x_scale_ if sobol is None else -np.array(sobol["total"])
    target = str(getattr(model, "metadata_", {}).get("target", "y"))
    scores = _removal_scores(post)
    facts = {
        "target": target,
        "lead": _lead(model, plain.kind, pruned),
        "ranges": np.stack([low, high], axis=1),
        "middle": model.x_mean_,
        "order": np.argsort(by, kind="stable"),
        "span": [0.0, 1.0]
        if plain.classes
        else [model.y_mean_ - model.y_scale_, model.y_mean_ + model.y_scale_],
        "lengthscales": lengthscales,
        "sobol": sobol,
        "paths": None if plain.classes else _paths(model),
        "scores": scores,
        "kept": np.argsort(-np.array(scores), kind="stable")[:LISTED],
        "basiswords": f"The {min(len(post), LISTED)} of {len(post)} that would cost most to remove, in nats.",
        "parameters": _parameters(model),
        "report": str(model.report_) if hasattr(model, "report_") else "",
        "surprises": [],
        "calibration": None,
    }
    if not plain.classes:
        facts |= _checks(model, X, y)
    text = page(plain, facts).encode()
    with replacing(Path(path)) as file:
        file.write_bytes(text)
    return len(text)


def _small_enough(model: Any) -> tuple[Any, int]:
    """The model with no more functions than a page can hold, and how many it had if some were pruned."""
    post = getattr(model, "posterior_", None)
    if not isinstance(post, Posterior) or len(post) <= MOST_ON_A_PAGE:
        return model, 0
    small = model.light()
    small.posterior_ = replace(post, sites=None).prune(MOST_ON_A_PAGE)
    for name in ("report_", "_rows", "fit_result_"):
        if hasattr(model, name):
            setattr(small, name, getattr(model, name))
    return small, len(post)


def _lead(model: Any, kind: str, pruned: int) -> str:
    rows = getattr(model, "n_rows_", None)
    words = f"{type(model).__name__}" + (f" of {rows:,} rows" if rows else "")
    words += (
        f", {model.n_features_in_} inputs. Everything here is computed in this page from the model itself."
    )
    if kind == "classes":
        words += " Lines are probabilities of classes."
    if pruned:
        words += f" Of {pruned} basis functions the page has the {MOST_ON_A_PAGE} that matter most."
    return words


def _sobol(model: Any) -> dict[str, Any] | None:
    if model.n_features_in_ > 60:  # a panel for each would be no help, and they take their time
        return None
    try:
        found = model.sobol_indices()
    except ParameterError:
        return None
    return {name: getattr(found, name) for name in ("first", "total", "first_std", "total_std")}


def _lengthscales(model: Any) -> list[float]:
    """The lengthscale of each input in the user's units."""
    scales = np.broadcast_to(getattr(model.kernel_, "lengthscale", np.inf), model.n_features_in_)
    return (scales * model.x_scale_).tolist()


def _paths(model: Any) -> dict[str, Any] | None:
    try:
        paths = model.posterior_.paths(DRAWN_PATHS, 0, features=WAVES)
    except (ParameterError, ConditionalError):
        return None
    arrays = {"frequencies": paths.waves.frequencies, "amplitudes": paths.waves.amplitudes}
    arrays |= {"slopes": paths.waves.slopes, "weights": paths.weights, "coefficients": paths.coefficients}
    arrays |= {"x_mean": model.x_mean_, "x_scale": model.x_scale_}
    return {"size": DRAWN_PATHS, "y": float(model.y_scale_)} | {k: packed(a) for k, a in arrays.items()}


def _removal_scores(post: Posterior) -> list[float]:
    try:
        return post.removal_scores().tolist()
    except (ConditionalError, ParameterError):
        return [0.0] * len(post)


def _parameters(model: Any) -> list[tuple[str, str]]:
    """Names and values, those of data in the user's units."""
    rows = [("kernel", type(model.kernel_).__name__)]
    rows += [(f"kernel {name}, scaled inputs", _text(v)) for name, v in model.kernel_.parameters.items()]
    if getattr(model, "noise_", None) is not None:
        rows.append(("noise, standard deviation", _text(np.sqrt(model.noise_))))
    rows += [("approximation", str(model.approximation_))] if hasattr(model, "approximation_") else []
    rows += [("log evidence", _text(model.log_evidence_))] if model.log_evidence_ is not None else []
    return [
        *rows,
        ("mean of each input", _text(model.x_mean_)),
        ("scale of each input", _text(model.x_scale_)),
    ]


def _text(value: Any) -> str:
    return np.array2string(np.asarray(value, dtype=float), precision=6, separator=", ", threshold=40)


def _checks(model: Any, X: Any, y: Any) -> dict[str, Any]:
    """Calibration and surprising rows."""
    if X is not None and y is not None:
        mean, std = model.predict(X, return_std=True)
        observed, words = np.asarray(y, dtype=float), "Rows of the table given"
    elif hasattr(model, "_rows") and model.noise_posterior_ is None and model.likelihood_ is None:
        left = model.loo_
        mean, std, observed = left.mean, left.std, left.mean + left.error
        words = "Rows fitted to, each predicted by the others"
    else:
        return {}
    if mean.ndim > 1:
        return {}
    z = (observed - mean) / std
    held = [float(np.mean(np.abs(2.0 * ndtr(z) - 1.0) <= level)) for level in LEVELS]
    worst = np.argsort(-np.abs(z), kind="stable")[:SURPRISES]
    inside = float(np.mean(np.abs(z) <= 1.96))
    words += f": {inside:.1%} of {len(z)} lie in their 95 % interval. On the diagonal promises are kept."
    surprises = [dict(row=int(i), y=observed[i], mean=mean[i], std=std[i]) for i in worst]
    return {"calibration": {"nominal": LEVELS, "observed": held, "words": words}, "surprises": surprises}
