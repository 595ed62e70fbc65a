"""Exports to C, JavaScript and ONNX, run by a compiler, node and onnxruntime, against `predict`."""

import importlib.util
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from typer.testing import CliRunner

import inducing as ig
from inducing.cli import app
from inducing.estimators import exporting
from inducing.files.exports import MILLS_NODES, MILLS_WEIGHTS, Exported, ExportedColumn, to_c, to_js
from inducing.files.onnx_graph import to_onnx
from inducing.model.compiled import Folded, Functions, Leaf

RBF, RQ, Linear, Constant = (
    ig.kernels.RBF,
    ig.kernels.RationalQuadratic,
    ig.kernels.Linear,
    ig.kernels.Constant,
)
Levels, Warped = ig.kernels.Levels, ig.kernels.Warped
Matern12, Matern32, Matern52 = ig.kernels.Matern12, ig.kernels.Matern32, ig.kernels.Matern52
TOOLS = {"c": shutil.which("cc"), "js": shutil.which("node"), "onnx": importlib.util.find_spec("onnxruntime")}
NEEDED = {"c": "a C compiler", "js": "node", "onnx": "onnxruntime"}
REGRESSORS = {
    "fitc": dict(approximation="fitc"),
    "matern12": dict(kernel="matern12", approximation="vfe"),
    "matern32": dict(kernel="matern32", approximation="vfe"),
    "matern52, degenerate": dict(kernel="matern52", approximation="sor"),
    "multiscale": dict(basis="multiscale"),
    "learned noise": dict(noise="learned"),
    "exact": dict(approximation="exact"),
    "linear mean": dict(mean=ig.means.Linear([0.1, 0.2, 0.3])),
    "rational quadratic": dict(kernel="rationalquadratic", approximation="vfe"),
    "linear": dict(kernel=Linear(1.0), approximation="exact"),
    "a sum with a linear term": dict(kernel=RQ(1.5, 1.2, shape=0.7) + Linear([0.3, 0.2, 0.1])),
    "curves of each input, exact": dict(
        kernel=RBF([1.0, 2.0, 3.0]) + Matern52(0.8, columns=(0,)) + Matern12(1.3, 0.4, columns=(2,)),
        approximation="exact",
    ),
    "products of sums": dict(
        kernel=(RBF(1.0, columns=(1,)) + Constant(0.3)) * (Linear(0.2) + Matern32(2.0, columns=(0, 2))),
        approximation="vfe",
    ),
    "polynomial": dict(kernel=ig.kernels.Polynomial(3, 0.5, columns=(0, 1)), approximation="exact"),
    "warps": dict(
        kernel=Warped(RBF([2.0, 0.7, 200.0, 1.3], columns=[0, 3, 2, 4]), [[1, 40.0, 9.0], [0, 5.0, 2.0]])
    ),
    "levels": dict(kernel=Levels(RBF([2.0, 20.0, 200.0, 0.5, 0.7, 0.6]), [[0, 3.0], [0, 4.5], [0, 7.0]])),
    "levels of two columns, and curves": dict(
        kernel=Levels(Matern32([2.0, 30.0, 200.0, 0.5, 0.9]), [[0, 3.0], [0, 6.0]]) * Constant(0.7)
        + Levels(Matern52([2.0, 20.0, 300.0, 0.4, 0.8]), [[2, -80.0], [2, 120.0]])
        + Matern52(0.8, columns=(1,)),
        approximation="exact",
    ),
    "a degenerate sum": dict(kernel=RBF(1.0) + Linear(0.3), approximation="sor"),
}


def _table(n=120):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (n, 3)) * [1, 10, 100] + 5
    f = np.sin(X[:, 0]) + X[:, 1] / 10
    return X, 100 + 20 * (f + 0.1 * rng.standard_normal(n)), f


def _models():
    X, y, f = _table()
    for name, options in REGRESSORS.items():
        size = {} if options.get("approximation") == "exact" else {"n_inducing": 11}
        yield name, ig.SparseGPRegressor(max_iter=5, random_state=0, **size, **options).fit(X, y)
    for name, labels in (("two classes", f > 0.2), ("four classes", np.digitize(f, [-0.5, 0.2, 0.8]))):
        yield name, ig.SparseGPClassifier(n_inducing=11, max_iter=5, random_state=0).fit(X, labels)


@pytest.mark.parametrize("to", TOOLS)
def test_what_is_written_predicts_as_the_model(tmp_path, to):
    if not TOOLS[to]:
        pytest.skip(f"{NEEDED[to]} is not installed")
    for name, model in _models():
        difference = ig.export(model, tmp_path / f"model.{to}", to)
        assert difference is not None and difference < 1e-10, name


def test_tails_of_the_normal_distribution():
    from scipy.special import log_ndtr

    t = np.concatenate([np.linspace(0, 12, 200), np.linspace(12, 40, 100)])
    ratio = np.exp(-np.outer(t, MILLS_NODES)) @ MILLS_WEIGHTS
    np.testing.assert_allclose(
        -0.5 * t**2 - 0.5 * np.log(2 * np.pi) + np.log(ratio), log_ndtr(-t), rtol=1e-12
    )


def test_names_of_columns_and_classes_cannot_break_out(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y, f = _table(60)
    names = ["*/ int x;", "</script>", 'a"\\\n#']
    frame = pandas.DataFrame(X, columns=names)
    model = ig.SparseGPRegressor(n_inducing=5, optimize=None).fit(frame, y)
    for to in ("c", "js"):
        assert ig.export(model, tmp_path / f"m.{to}", to) is not None or not TOOLS[to]
    text = (tmp_path / "m.c").read_text()
    assert "*/ int" not in text and text.count("*/") == 1
    assert "</script>" not in (tmp_path / "m.js").read_text()


@pytest.mark.parametrize("to", TOOLS)
def test_names_and_levels_are_no_part_of_templates_and_graphs(tmp_path, to):
    """Levels that look like places of a template; columns named as nodes of a graph may be."""
    pandas = pytest.importorskip("pandas")
    if not TOOLS[to]:
        pytest.skip(f"{NEEDED[to]} is not installed")
    rng = np.random.default_rng(2)
    levels = np.array(["@_", "@d#", "@lines", "@m#"])[rng.integers(4, size=80)]
    frame = pandas.DataFrame({"t0": rng.uniform(0, 9, 80), "_c1": rng.uniform(0, 9, 80), "@_row": levels})
    y = np.sin(frame["t0"]) + (levels == "@_") + 0.1 * rng.standard_normal(80)
    labels = np.array(["@c#", "@_x"])[(y > 0.3).astype(int)]
    for target, kind in ((y, ig.SparseGPRegressor), (labels, ig.SparseGPClassifier)):
        model = kind("rbf", n_inducing=7, max_iter=3, random_state=0).fit(frame, target)
        difference = ig.export(model, tmp_path / f"m.{to}", to)
        assert difference is not None and difference < 1e-10
    if to == "c":
        text = (tmp_path / "m.c").read_text()
        assert r'{"\100_x", "\100c#"}' in text and "u0040_row" in text


@pytest.mark.parametrize("name", ["", "mean", "std", "p"])
def test_a_column_cannot_have_the_name_of_a_graphs_output(name):
    column = ExportedColumn(name, 0.0, ("x", "y"))
    with pytest.raises(ig.errors.ParameterError, match=f"cannot be named '{name}': rename that column"):
        to_onnx(_of_one_function(column.width, columns=(column,)))


def _of_one_function(d, root=0.0, **options):
    """A process on one function at 0: mean x₁ + 2x₂ + …, its variance 1 - (root k)²."""
    functions = Functions(np.zeros((d, 1)), np.zeros(d), ((1.0, (Leaf(0, np.arange(d), np.ones((d, 1))),)),))
    process = Folded(functions, np.zeros(1), np.full((1, 1), root), 0.0, 1.0 + np.arange(d), 1.0)
    return Exported("regression", (process,), 0.0, tuple(f"f{i}" for i in range(d)), **options)


@pytest.mark.parametrize("to", TOOLS)
def test_a_variance_below_zero_by_rounding_is_none(tmp_path, to):
    if not TOOLS[to]:
        pytest.skip(f"{NEEDED[to]} is not installed")
    model, path = _of_one_function(1, 1.0 + 1e-9), tmp_path / "m"
    made = {"c": to_c, "js": to_js, "onnx": to_onnx}[to](model)
    path.write_bytes(made if to == "onnx" else made.encode())
    run = {"c": exporting._run_c, "js": exporting._run_js, "onnx": exporting._run_onnx}[to]
    found = run(path, np.array([[0.0], [3.0]]), model, "model")
    np.testing.assert_allclose(found, [[0.0, 0.0], [3.0, np.sqrt(1 - np.exp(-9.0))]], atol=1e-7)


def test_a_graph_tells_what_it_takes_and_gives():
    """Versions that runtimes since 2021 know, names and shapes of inputs and outputs, and what they mean."""
    onnx = pytest.importorskip("onnx")
    X, y, f = _table(60)
    double, text = onnx.TensorProto.DOUBLE, onnx.TensorProto.STRING
    regressor = ig.SparseGPRegressor(n_inducing=5, optimize=None).fit(X, y)
    classifier = ig.SparseGPClassifier(n_inducing=5, max_iter=1).fit(X, f > 0.2)
    column = ExportedColumn("a", 0.0, ("x", "y"))
    for model, inputs, outputs in (
        (exporting.exported(regressor), {"X": (double, 3)}, {"mean": (double,), "std": (double,)}),
        (exporting.exported(classifier), {"X": (double, 3)}, {"p": (double, 2)}),
        (_of_one_function(2, columns=(column,)), {"a": (text, 1)}, {"mean": (double,), "std": (double,)}),
    ):
        whole = onnx.load_from_string(to_onnx(model))
        versions = {own.domain: own.version for own in whole.opset_import}
        assert (whole.ir_version, versions) == (8, {"": 13, "ai.onnx.ml": 3})
        for found, expected in ((whole.graph.input, inputs), (whole.graph.output, outputs)):
            kinds = {value.name: value.type.tensor_type for value in found}
            shapes = {name: [d.dim_param or d.dim_value for d in k.shape.dim] for name, k in kinds.items()}
            assert {name: k.elem_type for name, k in kinds.items()} == {k: v[0] for k, v in expected.items()}
            assert shapes == {name: ["n", *rest] for name, (_, *rest) in expected.items()}
        told = {entry.key: json.loads(entry.value) for entry in whole.metadata_props}
        assert told == {"features": list(model.features), "classes": list(model.classes)}


def test_a_module_refuses_rows_that_are_none(tmp_path):
    """A gap is not 0, and nothing gives NaN."""
    if not TOOLS["js"]:
        pytest.skip("node is not installed")
    columns = (ExportedColumn("a"), ExportedColumn("b", 0.0, ("x", "y"), "none"))
    (tmp_path / "m.mjs").write_text(to_js(_of_one_function(3, columns=columns)))
    rows = ['{a: 1, b: "x"}', '{a: "2", b: "x"}', "{a: new Date(3000), b: 'y'}", "[1, 0, 1]"]
    bad = ['{b: "x"}', '{a: "", b: "x"}', '{a: null, b: "x"}', '{a: "one", b: "x"}', "{a: 1}"]
    bad += ["{a: 1, b: ''}", "[1, 0]", "[1, 0, NaN]", "[1, 0, 1, 1]"]
    (tmp_path / "main.mjs").write_text(
        'import { predict } from "./m.mjs";\n'
        "const said = (x) => { try { return predict(x).mean; } catch (e) { return e.name; } };\n"
        f"console.log(JSON.stringify([{', '.join(rows + bad)}].map(said)));\n"
    )
    done = subprocess.run(["node", tmp_path / "main.mjs"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [3.0, 4.0, 6.0, 4.0, *["RangeError"] * len(bad)]


def test_the_command_says_how_well_it_agrees(tmp_path):
    X, y, _ = _table(60)
    model = ig.SparseGPRegressor(n_inducing=5, optimize=None).fit(X, y)
    model.save(tmp_path / "m.gp", {"target": "y"})
    out = tmp_path / "m.h"
    done = CliRunner().invoke(app, ["export", str(tmp_path / "m.gp"), "--to", "c", "-o", str(out)])
    assert done.exit_code == 0 and "differs from predict by" in done.output or not TOOLS["c"]
    assert "model_predict" in out.read_text() and "malloc" not in out.read_text()


@pytest.mark.parametrize(
    "options, sentence",
    [
        (dict(kernel=RBF(1.0) + ig.kernels.Periodic(1.0)), "only sums and products of RBF"),
        (
            dict(kernel=Levels(Levels(RBF([1.0] * 6), [[1, 0.0]]), [[0, 0.0], [0, 1.0]])),
            "not Levels: use predict, or fit",
        ),
        (dict(approximation="neighbours"), "needs its data at every query"),
        (dict(likelihood="poisson"), "Gaussian noise"),
    ],
)
def test_what_cannot_be_exported_says_why(tmp_path, options, sentence):
    X, y, f = _table(60)
    target = np.round(np.exp(f)) if "likelihood" in options else y
    model = ig.SparseGPRegressor(n_inducing=5, optimize=None, **options).fit(X, target)
    with pytest.raises(ig.errors.ParameterError, match=sentence):
        ig.export(model, tmp_path / "m.c", "c")
    assert not (tmp_path / "m.c").exists()
    with pytest.raises(ig.errors.UnknownNameError, match="c, js, onnx"):
        ig.export(model, tmp_path / "m", "cobol")


def test_a_header_reads_nothing_beyond_its_tables(tmp_path):
    """A compiler may make of that what it likes, the right numbers among them."""
    X, y, _ = _table(60)
    for basis, columns in (("multiscale", "5"), ("points", "1")):
        model = ig.SparseGPRegressor(basis=basis, n_inducing=5, max_iter=2, random_state=0).fit(X, y)
        ig.export(model, tmp_path / "m.h", "c")
        declared, *used = re.findall(r"model_p0_0\[(\d)\]\[(\w)\]", (tmp_path / "m.h").read_text())
        assert declared == ("3", columns)
        assert used == [(str(i), "j" if columns == "5" else "0") for i in range(3)]


def test_a_javascript_module_holds_its_arrays_as_json(tmp_path):
    X, y, _ = _table(60)
    ig.export(ig.SparseGPRegressor(n_inducing=5, optimize=None).fit(X, y), tmp_path / "m.js", "js")
    line = next(s for s in (tmp_path / "m.js").read_text().splitlines() if s.startswith("const model"))
    plain = json.loads(line.removeprefix("const model = ").removesuffix(";"))
    assert plain["kind"] == "regression" and len(plain["processes"][0]["alpha"]) == 5


@pytest.mark.parametrize("to", TOOLS)
def test_the_encoding_of_a_table_is_folded_in(tmp_path, to):
    pandas = pytest.importorskip("pandas")
    if not TOOLS[to]:
        pytest.skip(f"{NEEDED[to]} is not installed")
    rng = np.random.default_rng(1)
    levels = np.array(['re"d\\', "grün 🙂", "*/ blue?"])[rng.integers(3, size=80)]
    when = pandas.Timestamp("2024-03-01") + pandas.to_timedelta(rng.integers(0, 10**6, 80), unit="s")
    frame = pandas.DataFrame(
        {"size": rng.uniform(0, 9, 80), "col our": levels, "when": when, "new": rng.random(80) > 0.5}
    )
    y = 3 * np.sin(frame["size"]) * (1 + (levels == "grün 🙂")) + 0.3 * rng.standard_normal(80)
    for target, kind in ((y, ig.SparseGPRegressor), (y > 0, ig.SparseGPClassifier)):
        options = {"basis": "points"} if kind is ig.SparseGPRegressor else {}
        model = kind("rbf", n_inducing=7, max_iter=3, random_state=0, **options).fit(frame, target)
        difference = ig.export(model, tmp_path / f"m.{to}", to)
        assert difference is not None and difference < 1e-10
        model.explain(tmp_path / "page.html")


@pytest.mark.parametrize("to", TOOLS)
@pytest.mark.parametrize("unseen", ["error", "none", "other"])
def test_a_level_that_was_not_seen(tmp_path, to, unseen):
    """In each language: an error, no feature, or that of the others."""
    if not TOOLS[to]:
        pytest.skip(f"{NEEDED[to]} is not installed")
    column = ExportedColumn("a", 0.0, ("x", "y"), unseen)
    model = _of_one_function(column.width, columns=(column,))
    told = []
    for level in ("y", "z"):
        try:
            told.append(_asked_of(model, level, to, tmp_path))
        except (subprocess.CalledProcessError, RuntimeError):
            told.append(None)
    assert told == [2.0, {"error": None, "none": 0.0, "other": 3.0}[unseen]]


def _asked_of(model, level, to, folder):
    """The mean of a model with one column of levels, by a language."""
    if to == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(to_onnx(model), providers=["CPUExecutionProvider"])
        try:
            return float(session.run(None, {"a": np.array([[level]], dtype=object)})[0][0])
        except Exception as error:  # onnxruntime has kinds of its own
            raise RuntimeError from error
    if to == "js":
        (folder / "m.mjs").write_text(to_js(model))
        (folder / "main.mjs").write_text(
            f'import {{ predict }} from "./m.mjs";console.log(predict({{a: "{level}"}}).mean)'
        )
        command = ["node", str(folder / "main.mjs")]
    else:
        (folder / "m.h").write_text(to_c(model))
        (folder / "main.c").write_text(
            '#include <stdio.h>\n#include "m.h"\nint main(void) { double x[3], m, s;\n'
            f'model_row row = {{"{level}"}}; if (model_features(&row, x)) return 1;\n'
            'model_predict(x, &m, &s); printf("%g", m); return 0; }\n'
        )
        subprocess.run(["cc", "-std=c99", str(folder / "main.c"), "-o", str(folder / "m"), "-lm"], check=True)
        command = [str(folder / "m")]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
