"""Predictors in other languages: a C99 header, a JavaScript module (ONNX: `onnx_graph.py`), in doubles.

All of them compute what `model.compiled.Folded` says of each process, for x in the user's units, and what the
observations make of it: a variance of y, a noise that is a process of its own, or the probabilities of
classes, Φ(mean/√(noise + variance)) each. Rows of a table with categories or dates are encoded there, too.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from ..errors import ParameterError
from ..model.compiled import LINEAR, Folded, Functions, Leaf

ExportKind = Literal["regression", "learned noise", "classes"]
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
    levels: tuple[str, ...] = ()  # a feature of 0 and 1 each
    unseen: Literal["error", "none", "other"] = "error"  # of another level: no feature, or one of its own

    @property
    def width(self) -> int:
        """The number of its features."""
        return len(self.levels) + (self.unseen == "other") if self.levels else 1


@dataclass(frozen=True, eq=False)
class Exported:
    """A model as arrays in the user's units: its processes, which may share functions, and observations."""

    kind: ExportKind
    processes: tuple[Folded, ...]
    noise: float  # of classes, the probit's; elsewhere it is in the variance
    features: tuple[str, ...]
    classes: tuple[str, ...] = ()
    columns: tuple[
        ExportedColumn, ...
    ] = ()  # where features are made of columns; else these are the features

    @property
    def functions(self) -> list[Functions]:
        """The basis functions of the processes, each once."""
        return list({id(p.functions): p.functions for p in self.processes}.values())

    def own_functions(self, process: Folded) -> int:
        """The number of the functions that a process leans on."""
        return [id(f) for f in self.functions].index(id(process.functions))

    def plain(self) -> dict[str, Any]:
        """The same as data for JSON, whose arrays are NumPy's."""
        return {
            "kind": self.kind,
            "functions": [
                {"centers": f.centers, "origin": f.origin}
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
    """The lower triangle of a matrix, row by row."""
    return T[np.tril_indices(len(T))]


# C


def to_c(model: Exported, name: str = "model") -> str:
    """A C99 header without malloc: `NAME_predict(x, mean, std)`, or `NAME_probabilities(x, p)` of classes;
    `NAME_features(row, x)` encodes a row of a table, and returns the number of a column whose level is new.
    """
    if not name.isidentifier() or not name.isascii():
        raise ParameterError(f"{name!r} is no name in C; use letters, digits and underscores")
    count = len(model.processes)
    inputs = "\n".join(f"   x[{i}]: {_comment(feature)}" for i, feature in enumerate(model.features))
    tables, body = {}, ""
    for b, f in enumerate(model.functions):
        own = [c for c, p in enumerate(model.processes) if p.functions is f]
        chosen = [model.processes[c] for c in own]
        tables[f"centers{b}"] = f.centers
        tables[f"alpha{b}"] = np.stack([p.alpha for p in chosen])
        tables[f"t{b}"] = np.stack([packed_lower(p.T) for p in chosen])
        tables[f"process{b}"] = np.stack([[p.bias, p.floor, p.share, *p.slope] for p in chosen])
        leaves = [leaf for _, leaves in f.terms for leaf in leaves]
        tables |= {f"p{b}_{i}": leaf.precisions for i, leaf in enumerate(leaves)}
        part = _C_BODY.replace("@terms", _c_terms(f, b))
        sizes = {"@m#": f.centers.shape[1], "@own#": len(own), "@first#": own[0], "@b#": b}
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
        ends = _C_TWO if count == 1 else _C_MANY
        ends = f"static const char *const @_classes[{len(model.classes)}] = {{{labels}}};\n\n" + ends
    else:
        noise = "exp(mean[1] + 0.5 * variance[1])" if model.kind == "learned noise" else "0.0"
        ends = _C_REGRESSION.replace("@noise", noise)
    text = f"/* Made by inducing. The inputs, in the units of the table:\n{inputs}\n*/\n"
    text += f"#include <math.h>\n{_c_columns(model.columns)}\n{arrays}{body}{ends}"
    text = text.replace("  @_processes(x, mean, variance);\n", calls)
    for key, value in {"@d#": str(len(model.features)), "@c#": str(count)}.items():
        text = text.replace(key, value)
    return text.replace("@probit#", repr(model.noise)).replace("@_", f"{name}_")


def _c_terms(f: Functions, b: int) -> str:
    """The loops that add each term of the kernel to k, and its value at x itself to `whole`."""
    text, number = "", 0
    for variance, leaves in f.terms:
        text += f"  own = {variance!r};\n  for (int j = 0; j < @m#; j++) u[j] = own;\n"
        for leaf in leaves:
            text += _c_leaf(f, leaf, f"@_p{b}_{number}")
            number += 1
        text += "  whole += own;\n  for (int j = 0; j < @m#; j++) k[j] += u[j];\n"
    return text


def _c_leaf(f: Functions, leaf: Leaf, table: str) -> str:
    """The loops that multiply u, and the value at x itself, by a leaf."""
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
    """A string in C, what is not plain ASCII by the octal numbers of its bytes."""
    plain = set(range(32, 127)) - set(b'"\\?')
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'


def _c_columns(columns: tuple[ExportedColumn, ...]) -> str:
    """The row of a table and its encoding; nothing where there are none."""
    if not columns:
        return ""
    fields, tables, lines, at = "", "", "", 0
    for i, column in enumerate(columns):
        kind = "const char *" if column.levels else "double "
        fields += f"  {kind}c{i}; /* {_comment(column.name)} */\n"
        if column.levels:
            n, unseen = len(column.levels), ("error", "none", "other").index(column.unseen)
            tables += (
                f"static const char *const @_levels{i}[{n}] = {{{', '.join(map(_c_text, column.levels))}}};\n"
            )
            lines += f"  if (@_level(row->c{i}, @_levels{i}, {n}, {unseen}, x + {at})) return {i + 1};\n"
        else:
            lines += f"  x[{at}] = row->c{i} - {column.origin!r};\n"
        at += column.width
    return _C_COLUMNS.replace("@fields", fields).replace("@tables", tables).replace("@lines", lines)


def _comment(text: str) -> str:
    """Text that cannot end a comment or a line."""
    return json.dumps(text).replace("*/", "* /")


_C_COLUMNS = """#include <string.h>

typedef struct {
@fields} @_row;

@tables
static int @_level(const char *text, const char *const *levels, int n, int unseen, double *x) {
  int at = 0;
  while (at < n && strcmp(levels[at], text)) at++;
  for (int j = 0; j < n + (unseen == 2); j++) x[j] = j == at;
  return at == n && unseen == 0;
}

static inline int @_features(const @_row *row, double *x) {
@lines  return 0;
}
"""
_C_BODY = """static void @_processes@b#(const double *x, double *mean, double *variance) {
  double k[@m#], u[@m#], s[@m#], own, here, t, whole = 0.0;
  for (int j = 0; j < @m#; j++) k[j] = 0.0;
@terms  for (int c = 0; c < @own#; c++) {
    const double *process = @_process@b#[c], *t = @_t@b#[c];
    double squares = 0.0, sum = process[0];
    for (int i = 0; i < @d#; i++) sum += process[3 + i] * x[i];
    for (int j = 0; j < @m#; j++) sum += @_alpha@b#[c][j] * k[j];
    for (int j = 0; j < @m#; t += ++j) {
      double a = 0.0, b = 0.0;
      int i = 0;
      for (; i < j; i += 2) {
        a += t[i] * k[i];
        b += t[i + 1] * k[i + 1];
      }
      if (i == j) a += t[i] * k[i];
      squares += (a + b) * (a + b);
    }
    mean[@first# + c] = sum;
    variance[@first# + c] = process[1] + (process[2] > 0.0 ? process[2] * whole - squares : squares);
  }
}

"""
_C_REGRESSION = """static inline void @_predict(const double *x, double *y_mean, double *y_std) {
  double mean[@c#], variance[@c#];
  @_processes(x, mean, variance);
  *y_mean = mean[0];
  *y_std = sqrt(fmax(variance[0], 0.0) + @noise);
}
"""
_C_TWO = """static inline void @_probabilities(const double *x, double *p) {
  double mean[1], variance[1];
  @_processes(x, mean, variance);
  p[1] = 0.5 * erfc(-mean[0] / sqrt(2.0 * (@probit# + fmax(variance[0], 0.0))));
  p[0] = 1.0 - p[1];
}
"""
_C_MANY = """static inline void @_probabilities(const double *x, double *p) {
  double mean[@c#], variance[@c#], odds[@c#], most = -INFINITY, sum = 0.0;
  @_processes(x, mean, variance);
  for (int c = 0; c < @c#; c++) {
    double z = mean[c] / sqrt(2.0 * (@probit# + fmax(variance[c], 0.0)));
    z = fmax(-26.0, fmin(26.0, z));
    odds[c] = log(erfc(-z)) - log(erfc(z));
    most = fmax(most, odds[c]);
  }
  for (int c = 0; c < @c#; c++) sum += p[c] = exp(odds[c] - most);
  for (int c = 0; c < @c#; c++) p[c] /= sum;
}
"""


# JavaScript


def to_js(model: Exported) -> str:
    """An ES module without dependencies: `predict(x)` gives {mean, std}, of classes {label: probability}; x
    are features, or a row of a table as an object.
    """
    data = json.dumps(model.plain(), separators=(",", ":"), default=np.ndarray.tolist).replace("<", "\\u003c")
    text = f"// Made by inducing.\n{js_evaluator()}\nconst model = {data};\nexport {{ model, features }};\n"
    return text + _JS_END


def js_evaluator() -> str:
    """JavaScript functions of an `Exported.plain()`: `latent(model, x)`, means and variances of the
    processes, and `observed(model, x)`.
    """
    nodes = json.dumps(np.stack([MILLS_NODES, MILLS_WEIGHTS]).tolist(), separators=(",", ":"))
    return f"const MILLS = {nodes};\n{_JS_BODY}"


_JS_END = """
// the features of a row {column: value}; dates are Date objects, or seconds since 1970
function features(row) {
  return model.columns.flatMap(({ name, origin, levels, unseen }) => {
    const value = row[name];
    if (!levels.length) return [(value instanceof Date ? value / 1000 : Number(value)) - origin];
    const at = levels.indexOf(String(value));
    if (at < 0 && unseen === "error") throw new RangeError(`${name} has no level ${value}`);
    const own = levels.map((_, j) => Number(j === at));
    return unseen === "other" ? [...own, Number(at < 0)] : own;
  });
}

export function predict(x) {
  return observed(model, model.columns.length && !Array.isArray(x) ? features(x) : x);
}
"""
_JS_BODY = """const LEAVES = [
  (s) => Math.exp(-0.5 * s),
  (s) => Math.exp(-Math.sqrt(s)),
  (s) => (1 + Math.sqrt(3 * s)) * Math.exp(-Math.sqrt(3 * s)),
  (s) => (1 + Math.sqrt(5 * s) + (5 * s) / 3) * Math.exp(-Math.sqrt(5 * s)),
  (s, a) => Math.exp(-a * Math.log1p(s / (2 * a))),
  (s) => s,
];

// a leaf at all functions, and at x itself
function leafValues({ kind, columns, precisions, shape }, { centers, origin }, x) {
  const values = new Float64Array(centers[0].length), linear = kind === 5, leaf = LEAVES[kind];
  let own = linear ? 0 : 1;
  for (let i = 0; i < columns.length; i++) {
    const k = columns[i], z = centers[k], p = precisions[i], o = origin[k], t = p[0] * (x[k] - o);
    if (linear) {
      own += t * (x[k] - o);
      for (let j = 0; j < z.length; j++) values[j] += t * (z[j] - o);
    } else if (p.length > 1) for (let j = 0; j < z.length; j++) values[j] += p[j] * (x[k] - z[j]) ** 2;
    else for (let j = 0; j < z.length; j++) values[j] += p[0] * (x[k] - z[j]) ** 2;
  }
  for (let j = 0; j < values.length; j++) values[j] = leaf(values[j], shape);
  return [values, own];
}

// the functions at x, and k(x, x)
function kernel(functions, x) {
  const k = new Float64Array(functions.centers[0].length);
  let whole = 0;
  for (const { variance, leaves } of functions.terms) {
    const product = new Float64Array(k.length).fill(variance);
    let term = variance;
    for (const leaf of leaves) {
      const [values, own] = leafValues(leaf, functions, x);
      for (let j = 0; j < k.length; j++) product[j] *= values[j];
      term *= own;
    }
    for (let j = 0; j < k.length; j++) k[j] += product[j];
    whole += term;
  }
  return [k, whole];
}

// |Tk|² of a lower triangle, its rows one after the other
function squaredProduct(T, k) {
  let squares = 0, at = 0;
  for (let j = 0; j < k.length; j++) {
    let a = 0, b = 0, c = 0, d = 0, i = 0; // sums that do not wait for each other
    for (; i + 3 <= j; i += 4, at += 4) {
      a += T[at] * k[i];
      b += T[at + 1] * k[i + 1];
      c += T[at + 2] * k[i + 2];
      d += T[at + 3] * k[i + 3];
    }
    for (; i <= j; i++) a += T[at++] * k[i];
    squares += (a + b + (c + d)) ** 2;
  }
  return squares;
}

function latent(model, x) {
  const values = model.functions.map((functions) => kernel(functions, x));
  return model.processes.map((process) => {
    const [k, whole] = values[process.functions], { T, share, floor } = process;
    let mean = process.bias;
    for (let i = 0; i < process.slope.length; i++) mean += process.slope[i] * x[i];
    for (let j = 0; j < k.length; j++) mean += process.alpha[j] * k[j];
    const squares = squaredProduct(T, k) - (process.S ? squaredProduct(process.S, k) : 0);
    return { mean, variance: floor + (share > 0 ? share * whole - squares : squares) };
  });
}

// log of the normal distribution function at -t, t not negative
function logTail(t) {
  let sum = 0;
  for (let i = 0; i < MILLS[0].length; i++) sum += MILLS[1][i] * Math.exp(-t * MILLS[0][i]);
  return -0.5 * t * t - 0.5 * Math.log(2 * Math.PI) + Math.log(sum);
}

function observed(model, x) {
  const f = latent(model, x);
  if (model.kind !== "classes") {
    let variance = Math.max(f[0].variance, 0);
    if (model.kind === "learned noise") variance += Math.exp(f[1].mean + 0.5 * f[1].variance);
    return { mean: f[0].mean, std: Math.sqrt(variance) };
  }
  const odds = f.map(({ mean, variance }) => {
    const z = mean / Math.sqrt(model.noise + Math.max(variance, 0)), tail = logTail(Math.abs(z));
    return Math.sign(z) * (Math.log1p(-Math.exp(tail)) - tail);
  });
  if (odds.length === 1) odds.unshift(0);
  const most = Math.max(...odds), weights = odds.map((v) => Math.exp(v - most));
  const sum = weights.reduce((a, b) => a + b);
  return Object.fromEntries(model.classes.map((label, c) => [label, weights[c] / sum]));
}
"""
