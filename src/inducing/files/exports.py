"""Predictors in other languages: a C99 header, a JavaScript module (ONNX: `onnx_graph.py`), in doubles.

All of them compute mean and variance of each process as `model.compiled.Folded` says, for x in the user's
units, and from these y's, also with a noise that is a process of its own, or the probabilities of classes,
Φ(mean/√(noise + variance)) each. They also encode rows of a table with categories or dates.
"""

import json
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from ..errors import ParameterError
from ..model.compiled import LINEAR, Folded, Functions, Leaf

# M(t) = Φ(-t)/φ(t) = ∫₀^∞ exp(-tu - u²/2) du by the trapezoidal rule in s, u = exp(s - e⁻ˢ): to 13 digits
_STEPS = np.linspace(-4.2, 2.4, 67)
MILLS_NODES = np.exp(_STEPS - np.exp(-_STEPS))
MILLS_WEIGHTS = 0.1 * MILLS_NODES * (1.0 + np.exp(-_STEPS)) * np.exp(-0.5 * MILLS_NODES**2)
LEAVES_IN_C = (
    "exp(-0.5 * s[j])",
    "exp(-sqrt(s[j]))",
    "(1.0 + sqrt(3.0 * s[j])) * exp(-sqrt(3.0 * s[j]))",
    "(1.0 + sqrt(5.0 * s[j]) + 5.0 * s[j] / 3.0) * exp(-sqrt(5.0 * s[j]))",
    "exp(-@shape * log1p(s[j] / (2.0 * @shape)))",
    "s[j]",
)


@dataclass(frozen=True)
class ExportedColumn:
    """A column of the table that a model takes: a number, less its origin, or the text of a level."""

    name: str
    origin: float = 0.0
    levels: tuple[str, ...] = ()  # each is a feature of 0 and 1
    unseen: Literal["error", "none", "other"] = "error"  # another level: refused, all 0, or a feature

    @property
    def width(self) -> int:
        """The number of features that the column becomes."""
        return len(self.levels) + (self.unseen == "other") if self.levels else 1


@dataclass(frozen=True, eq=False)
class Exported:
    """A model as arrays in the user's units: processes, which may share basis functions, and noise."""

    kind: Literal["regression", "learned noise", "classes"]
    processes: tuple[Folded, ...]
    noise: float  # in the probit of classes; elsewhere it is in the variance
    features: tuple[str, ...]
    classes: tuple[str, ...] = ()
    columns: tuple[ExportedColumn, ...] = ()  # of a table; () where the inputs are the features

    @property
    def functions(self) -> list[Functions]:
        """The basis functions of the processes, each once."""
        return list({id(p.functions): p.functions for p in self.processes}.values())

    def own_functions(self, process: Folded) -> int:
        """Return the index in `functions` of the functions of a process."""
        return [id(f) for f in self.functions].index(id(process.functions))

    def plain(self) -> dict[str, Any]:
        """Return the model as plain data for JSON, with NumPy arrays."""
        return {
            "kind": self.kind,
            "functions": [
                {"centers": f.centers, "origin": f.origin, "hats": f.hats}
                | {"terms": [{"variance": v, "leaves": list(map(vars, leaves))} for v, leaves in f.terms]}
                for f in self.functions
            ],
            "processes": [
                vars(p) | {"functions": self.own_functions(p), "T": packed_lower(p.T)} for p in self.processes
            ],
            "noise": self.noise,
            "features": list(self.features),
            "classes": list(self.classes),
            "columns": [asdict(column) for column in self.columns],
        }


def packed_lower(T: np.ndarray) -> np.ndarray:
    """Return the lower triangle of a matrix, row by row."""
    return T[np.tril_indices(len(T))]


# C


def to_c(model: Exported, name: str = "model") -> str:
    """Write a C99 header without malloc: `NAME_predict(x, mean, std)`, or `NAME_probabilities(x, p)` of
    classes; `NAME_features(row, x)` encodes a row of a table; it returns the number of a column with a new
    level, or 0.
    """
    if not name.isidentifier() or not name.isascii():
        raise ParameterError(f"{name!r} is no name in C; use letters, digits and underscores")
    count, pieces = len(model.processes), _c_pieces()
    inputs = "\n".join(f"   x[{i}]: {_comment(feature)}" for i, feature in enumerate(model.features))
    tables, body = {}, ""
    for b, f in enumerate(model.functions):
        own = [c for c, p in enumerate(model.processes) if p.functions is f]
        chosen = [model.processes[c] for c in own]
        tables[f"centers{b}"] = f.centers
        tables[f"hats{b}"] = f.hats if len(f.hats) else np.zeros((1, 4))
        tables[f"alpha{b}"] = np.stack([p.alpha for p in chosen])
        tables[f"t{b}"] = np.stack([packed_lower(p.T) for p in chosen])
        tables[f"process{b}"] = np.stack([[p.bias, p.floor, p.share, *p.slope] for p in chosen])
        leaves = [leaf for _, leaves in f.terms for leaf in leaves]
        tables |= {f"p{b}_{i}": leaf.precisions for i, leaf in enumerate(leaves)}
        part = pieces["processes"].replace("@terms", _c_terms(f, b))
        sizes = {"@m#": f.centers.shape[1], "@e#": len(f.origin), "@b#": b}
        sizes |= {"@own#": len(own), "@first#": own[0]}
        for key, number in sizes.items():
            part = part.replace(key, str(number))
        body += part
    calls = "".join(f"  @_processes{b}(x, mean, variance);\n" for b in range(len(model.functions)))
    arrays = "".join(
        f"static const double {name}_{key}[{a.shape[0]}][{a.shape[1]}] = {{\n{_rows(a)}}};\n\n"
        for key, a in tables.items()
    )
    if model.kind == "classes":
        labels = ", ".join(map(_c_text, model.classes))
        ends = pieces["two"] if count == 1 else pieces["many"]
        ends = f"static const char *const @_classes[{len(model.classes)}] = {{{labels}}};\n\n" + ends
    else:
        noise = "exp(mean[1] + 0.5 * variance[1])" if model.kind == "learned noise" else "0.0"
        ends = pieces["regression"].replace("@noise", noise)
    text = f"/* Made by inducing. The inputs, in the units of the table:\n{inputs}\n*/\n"
    text += f"#include <math.h>\n{_c_columns(model.columns, pieces['columns'])}\n{arrays}{body}{ends}"
    text = text.replace("  @_processes(x, mean, variance);\n", calls)
    for key, value in {"@d#": str(len(model.features)), "@c#": str(count)}.items():
        text = text.replace(key, value)
    return text.replace("@probit#", repr(model.noise)).replace("@_", f"{name}_")


def _c_pieces() -> dict[str, str]:
    """Read the templates of a header by name from predictor.c, where a line `//// name` begins each."""
    pieces = (piece.partition("\n") for piece in template("predictor.c").split("//// "))
    return {name: text for name, _, text in pieces}


def template(name: str) -> str:
    """Read a text file beside this module."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _c_terms(f: Functions, b: int) -> str:
    """Write the loops that add each term of the kernel to k, and its value at x itself to `whole`."""
    text, number = "", 0
    for variance, leaves in f.terms:
        text += f"  own = {variance!r};\n  for (int j = 0; j < @m#; j++) u[j] = own;\n"
        for leaf in leaves:
            text += _c_leaf(f, leaf, f"@_p{b}_{number}")
            number += 1
        text += "  whole += own;\n  for (int j = 0; j < @m#; j++) k[j] += u[j];\n"
    return text


def _c_leaf(f: Functions, leaf: Leaf, table: str) -> str:
    """Write the loops that multiply u by a leaf, and `own` by its value at x itself."""
    linear, each = leaf.kind == LINEAR, "j" if leaf.precisions.shape[1] > 1 else "0"
    text = "  here = 0.0;\n  for (int j = 0; j < @m#; j++) s[j] = 0.0;\n"
    for i, k in enumerate(leaf.columns.tolist()):
        apart = f"t = x[{k}] - @_centers@b#[{k}][j]; s[j] += {table}[{i}][{each}] * t * t;"
        if linear:
            origin = f"({float(f.origin[k])!r})"
            text += f"  t = {table}[{i}][0] * (x[{k}] - {origin});\n  here += t * (x[{k}] - {origin});\n"
            apart = f"s[j] += t * (@_centers@b#[{k}][j] - {origin});"
        text += f"  for (int j = 0; j < @m#; j++) {{ {apart} }}\n"
    value = LEAVES_IN_C[leaf.kind].replace("@shape", repr(leaf.shape))
    text += "  own *= here;\n" if linear else ""
    return text + f"  for (int j = 0; j < @m#; j++) u[j] *= {value};\n"


def _rows(a: np.ndarray) -> str:
    return "".join("  {" + ", ".join(map(repr, row)) + "},\n" for row in a.tolist())


def _c_text(text: str) -> str:
    """Write a string in C, with bytes that are not plain ASCII in octal."""
    plain = set(range(32, 127)) - set(b'"\\?@')  # @ marks places of a template
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'


def _c_columns(columns: tuple[ExportedColumn, ...], piece: str) -> str:
    """Write the C type of a table's row and its encoding; nothing if the model takes no columns."""
    if not columns:
        return ""
    fields, tables, lines, at = "", "", "", 0
    for i, column in enumerate(columns):
        kind = "const char *" if column.levels else "double "
        fields += f"  {kind}c{i}; /* {_comment(column.name)} */\n"
        if column.levels:
            n, unseen = len(column.levels), ("error", "none", "other").index(column.unseen)
            levels = ", ".join(map(_c_text, column.levels))
            tables += f"static const char *const @_levels{i}[{n}] = {{{levels}}};\n"
            lines += f"  if (@_level(row->c{i}, @_levels{i}, {n}, {unseen}, x + {at})) return {i + 1};\n"
        else:
            lines += f"  x[{at}] = row->c{i} - {column.origin!r};\n"
        at += column.width
    return piece.replace("@fields", fields).replace("@tables", tables).replace("@lines", lines)


def _comment(text: str) -> str:
    """Quote text so that it cannot end a comment or a line, or look like a place of a template."""
    return json.dumps(text).replace("*/", "* /").replace("@", "\\u0040")


# JavaScript


def to_js(model: Exported) -> str:
    """Write an ES module without dependencies: `predict(x)` gives {mean, std}, or {label: probability} of
    classes, from an array of features or a row of a table as an object.
    """
    data = json.dumps(model.plain(), separators=(",", ":"), default=np.ndarray.tolist).replace("<", "\\u003c")
    text = f"// Made by inducing.\n{js_evaluator()}\nconst model = {data};\nexport {{ model, features }};\n"
    return text + template("module.js")


def js_evaluator() -> str:
    """Write JavaScript functions of an `Exported.plain()`: `latent(model, x)` gives means and variances of
    the processes, `observed(model, x)` predictions.
    """
    nodes = json.dumps(np.stack([MILLS_NODES, MILLS_WEIGHTS]).tolist(), separators=(",", ":"))
    return f"const MILLS = {nodes};\n{template('evaluator.js')}"
