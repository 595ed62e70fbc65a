"""`export`: a fitted model as a C header, a JavaScript module or an ONNX graph, checked against `predict`."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import package
from ..errors import ParameterError, require_one_of
from ..files.atomic import replacing
from ..files.exports import Exported, ExportedColumn, to_c, to_js
from ..files.onnx_graph import to_onnx
from ..inference.pivots import PivotedCholesky
from ..model.compiled import Folded
from ..model.likelihoods import LearnedNoise, Probit
from ..model.posterior import Posterior
from ..numerics.arrays import to_numpy
from ..sources.encoding import ColumnEncoder
from .classes import ClassesOfRows
from .guide import refuse_guided
from .predictive import nameless

MOST_FUNCTIONS = 2000  # basis functions: an export holds m²/2 numbers for each process
CHECKED_ROWS = 1000
LANGUAGES = ("c", "js", "onnx")


def export(
    model: Any, path: str | Path, to: str, *, name: str = "model", max_functions: int | None = None
) -> float | None:
    """Write a model's predictor as "c", "js" or "onnx", for x and y in the user's units, and check it.

    With `max_functions` a model of more basis functions is pruned to that number, and is an approximation.
    The file is run at 1,000 rows, if the machine has a C compiler, node or onnxruntime. Return the largest
    difference to `predict` or `predict_proba`, relative to the largest value, or None if it could not be run.
    `name` is the prefix of the C functions.
    """
    require_one_of("to", to, LANGUAGES)
    small = model
    if max_functions is not None:
        posts = pruned_to(processes_of(model), max_functions, shared=isinstance(model, ClassesOfRows))
        small = with_processes(model, posts)
    plain = exported(small)
    made = to_onnx(plain) if to == "onnx" else to_js(plain) if to == "js" else to_c(plain, name)
    with replacing(Path(path)) as file:
        file.write_bytes(made if isinstance(made, bytes) else made.encode())
    rng, own = np.random.default_rng(0), model
    X = own.x_mean_ + 1.5 * own.x_scale_ * rng.standard_normal((CHECKED_ROWS, own.n_features_in_))
    rows: Any = X
    if plain.columns:
        X, rows = _made_rows(model.encoder_, plain, X, rng)
    else:  # the rows are features without names
        own = nameless(model)
    ours = own.predict_proba(rows) if plain.classes else np.stack(own.predict(rows, return_std=True), axis=1)
    theirs = {"c": _run_c, "js": _run_js, "onnx": _run_onnx}[to](Path(path), X, plain, name)
    if theirs is None:
        return None
    return float(np.max(np.abs(theirs - ours) / np.max(np.abs(ours), axis=0)))


def exported(model: Any) -> Exported:
    """Return a fitted regressor or classifier as arrays in the user's units; raise if it has no such form."""
    if not isinstance(model, ClassesOfRows):
        refuse_guided(model, "nothing exports")
    first = processes_of(model)[0]
    # a model with missing="use" has columns for gaps, too
    if isinstance(first, Posterior) and first.basis.centers.shape[1] != model.n_features_in_:
        raise ParameterError("a model that knows of gaps in its inputs has no export; fit missing='drop'")
    if isinstance(model, ClassesOfRows):
        if not isinstance(model.likelihood_, Probit):
            raise ParameterError(f"only probit classes can be exported, not those of {model.likelihood_}")
        units = dict(x_mean=model.x_mean_, x_scale=model.x_scale_)  # type: ignore[attr-defined]
        forms = [_form(post).in_units(**units) for post in model.posteriors_]
        labels = tuple(str(label) for label in model.classes_.tolist())  # type: ignore[attr-defined]
        return _put_together(model, "classes", forms, model.likelihood_.noise, labels)
    likelihood = getattr(model, "likelihood_", None)
    units = dict(x_mean=model.x_mean_, x_scale=model.x_scale_, y_mean=model.y_mean_, y_scale=model.y_scale_)
    if isinstance(likelihood, LearnedNoise):
        second = _form(model.noise_posterior_).in_units(
            x_mean=model.x_mean_, x_scale=model.x_scale_, y_mean=2.0 * np.log(model.y_scale_)
        )
        return _put_together(model, "learned noise", [_form(model.posterior_).in_units(**units), second])
    if np.ndim(model.y_scale_) > 0 or model.noise_ is None:
        raise ParameterError("only models of one target with Gaussian noise, learned or not, have an export")
    noise = float(model.noise_ / model.y_scale_**2)
    return _put_together(model, "regression", [_form(model.posterior_).in_units(**units, noise=noise)])


def _form(post: Any) -> Folded:
    """Return a posterior folded for export; raise if it cannot be."""
    if not isinstance(post, Posterior):
        raise ParameterError("a model that needs its data at every query has no export; fit 'fitc' instead")
    if len(post) > MOST_FUNCTIONS:
        many = f"{len(post)} basis functions are too many to export, more than {MOST_FUNCTIONS}"
        raise ParameterError(f"{many}; give max_functions to approximate, or fit with n_inducing")
    return post.folded()


def processes_of(model: Any) -> list[Any]:
    """Return the processes of a fitted model: of its classes, or of f and of learned noise."""
    if isinstance(model, ClassesOfRows):
        return list(model.posteriors_)
    noise = getattr(model, "noise_posterior_", None)
    return [model.posterior_] if noise is None else [model.posterior_, noise]


def with_processes(model: Any, posts: Sequence[Posterior]) -> Any:
    """Return a copy of the model with other processes."""
    small = copy(model)
    if isinstance(model, ClassesOfRows):
        small.posteriors_ = tuple(posts)
    else:
        small.posterior_ = posts[0]
        small.noise_posterior_ = posts[1] if len(posts) > 1 else None
    return small


def pruned_to(posts: Sequence[Any], most: int, *, shared: bool) -> list[Any]:
    """Return the processes with at most `most` functions each, the same ones if the basis is shared.

    The functions of an exact process are its rows: the next one kept is always the least predictable one.
    """
    if not all(isinstance(post, Posterior) for post in posts) or max(map(len, posts)) <= most:
        return list(posts)
    posts = [replace(post, sites=None) for post in posts]
    if shared:
        costs = np.sum([post.removal_scores() for post in posts], axis=0)
        kept = np.sort(np.argsort(-costs, kind="stable")[:most])
        return [post.restrict(kept) for post in posts]
    return [_on_fewer_rows(post, most) if post.A is None else post.prune(most) for post in posts]


def _on_fewer_rows(post: Posterior, most: int) -> Posterior:
    if len(post) <= most:
        return post
    chosen = PivotedCholesky(post.kernel, to_numpy(post.basis.Z), most)  # type: ignore[union-attr]
    chosen.grow(lambda: int(np.argmax(chosen.residual)))
    return post.restrict(np.sort(chosen.chosen))


def _put_together(
    model: Any, kind: Any, forms: list[Folded], noise: float = 0.0, classes: tuple[str, ...] = ()
) -> Exported:
    d = model.n_features_in_
    names = getattr(model, "feature_names_in_", [f"x{i}" for i in range(d)])
    if kind == "classes":  # they share their functions
        forms = [replace(form, functions=forms[0].functions) for form in forms]
    columns = _columns(getattr(model, "encoder_", None))
    return Exported(kind, tuple(forms), float(noise), tuple(map(str, names)), classes, columns)


def _columns(encoder: ColumnEncoder | None) -> tuple[ExportedColumn, ...]:
    """Return the columns of a table that an export encodes itself; none if the columns are features already,
    or if one has a calendar, codes or an order: then its inputs are the features.
    """
    if encoder is None or encoder.plain:
        return ()
    used = [column for column in encoder.columns_ if column.kind != "left out"]
    if any(column.calendar or column.codes or column.kind == "ordered" for column in used):
        return ()
    unseen = "none" if encoder.allow_unseen else "error"
    return tuple(
        ExportedColumn(c.name, float(c.origin), c.levels, "other" if c.rest else unseen)  # type: ignore[arg-type]
        for c in used
    )


def _made_rows(encoder: ColumnEncoder, model: Exported, X: np.ndarray, rng: np.random.Generator) -> Any:
    """Return rows of a table with about these features: as numbers, levels by place, and as a frame."""
    numbers, frame, at = np.empty((len(X), len(model.columns))), {}, 0
    kinds = {column.name: column for column in encoder.columns_}
    for i, column in enumerate(model.columns):
        kind = kinds[column.name]
        if column.levels:
            numbers[:, i] = rng.integers(len(column.levels), size=len(X))
            frame[column.name] = np.array(column.levels, dtype=object)[numbers[:, i].astype(int)]
        elif kind.kind == "time":
            numbers[:, i] = np.round(X[:, at] + column.origin)
            dates = package("pandas").to_datetime(numbers[:, i].astype("M8[s]"), utc=True)
            frame[column.name] = dates if kind.zone else dates.tz_localize(None)
        else:
            numbers[:, i] = X[:, at] > 0.5 if kind.kind == "boolean" else X[:, at] + column.origin
            frame[column.name] = numbers[:, i]
        at += column.width
    return numbers, package("pandas").DataFrame(frame)


def _run_c(path: Path, X: np.ndarray, model: Exported, name: str) -> np.ndarray | None:
    """Compile the header into a program and return its results at rows X; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    d, k = X.shape[1], len(model.classes) or 2
    call = f"{name}_probabilities(x, p)" if model.classes else f"{name}_predict(x, p, p + 1)"
    columns = enumerate(model.columns)
    fields = [f"{name}_levels{i}[(int)r[{i}]]" if c.levels else f"r[{i}]" for i, c in columns]
    row = f"{name}_row row = {{{', '.join(fields)}}}; {name}_features(&row, x);"
    main = (
        f'#include <stdio.h>\n#include "{path.resolve()}"\nint main(void) {{\n'
        f"double r[{d}], x[{len(model.features)}], p[{k}];\n"
        f"while (fread(r, sizeof(double), {d}, stdin) == {d})\n"
        f"{{ {row if fields else f'for (int i = 0; i < {d}; i++) x[i] = r[i];'}\n"
        f"{call}; fwrite(p, sizeof(double), {k}, stdout); }}\n"
        "return 0; }\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "main.c", Path(folder) / "main"
        source.write_text(main)
        subprocess.run([compiler, "-std=c99", "-O2", str(source), "-o", str(program), "-lm"], check=True)
        done = subprocess.run([str(program)], input=X.tobytes(), capture_output=True, check=True)
    return np.frombuffer(done.stdout).reshape(-1, k)


def _run_js(path: Path, X: np.ndarray, model: Exported, name: str) -> np.ndarray | None:
    """Return the results of the JavaScript module at rows X; None without node."""
    node = shutil.which("node")
    if node is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        copy, main = Path(folder) / "model.mjs", Path(folder) / "main.mjs"
        shutil.copy(path, copy)
        (Path(folder) / "rows.json").write_text(json.dumps(X.tolist()))
        main.write_text(
            'import { readFileSync } from "fs";\nimport { predict, model } from "./model.mjs";\n'
            'const rows = JSON.parse(readFileSync(new URL("rows.json", import.meta.url)));\n'
            "const values = (o) => model.classes.length ? model.classes.map((c) => o[c]) : [o.mean, o.std];\n"
            "const named = (x) => Object.fromEntries(model.columns.map((c, i) =>"
            " [c.name, c.levels.length ? c.levels[x[i]] : x[i]]));\n"
            "const row = (x) => (model.columns.length ? named(x) : x);\n"
            "console.log(JSON.stringify(rows.map((x) => values(predict(row(x))))));\n"
        )
        done = subprocess.run([node, str(main)], capture_output=True, check=True, text=True)
    return np.array(json.loads(done.stdout))


def _run_onnx(path: Path, X: np.ndarray, model: Exported, name: str) -> np.ndarray | None:
    """Return the results of the ONNX graph at rows X; None without onnxruntime."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return None
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = {"X": X}
    for i, c in enumerate(model.columns):
        places = X[:, i : i + 1]
        given[c.name] = np.array(c.levels, dtype=object)[places.astype(int)] if c.levels else places
    outputs = session.run(None, {put.name: given[put.name] for put in session.get_inputs()})
    return np.asarray(outputs[0]) if model.classes else np.stack(outputs, axis=1)
