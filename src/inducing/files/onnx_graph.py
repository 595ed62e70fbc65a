"""A predictor as an ONNX graph of standard operators, in doubles; its formulas are in `exports.py`."""

import json
from typing import Any

import numpy as np

from .. import package
from ..errors import ParameterError
from ..model.compiled import RATIONAL, Folded, Functions, Leaf
from ..model.kernels.stationary import LINEAR
from .exports import MILLS_NODES, MILLS_WEIGHTS, Exported, ExportedColumn


def to_onnx(model: Exported) -> bytes:
    """Write a graph of standard operators: X (n, d) of doubles gives mean and std (n,), or p (n, classes). A
    model of a table has instead an input (n, 1) for each column, of text where that has levels.
    """
    onnx = package("onnx")
    TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper
    graph = _Graph(helper, numpy_helper, [column.name for column in model.columns])
    for name in {"", "mean", "std", "p"} & {column.name for column in model.columns}:
        raise ParameterError(f"an input of an ONNX graph cannot be named {name!r}: rename that column")
    if model.columns:
        graph.X = graph.add("Concat", *(part for c in model.columns for part in graph.column(c)), axis=1)
    values = [graph.kernel(f) for f in model.functions]
    parts = [graph.process(p, *values[model.own_functions(p)]) for p in model.processes]
    mean, variance = (graph.add("Concat", *columns, axis=1) for columns in zip(*parts))  # (n, c) each
    positive = graph.add("Max", variance, np.zeros(1))
    if model.kind == "classes":
        outputs = {"p": graph.probabilities(mean, positive, model)}
    else:
        columns = [graph.add("Gather", a, np.array(0), axis=1) for a in (mean, positive)]
        if model.kind == "learned noise":
            second = [graph.add("Gather", a, np.array(1), axis=1) for a in (mean, variance)]
            noise = graph.add("Exp", graph.add("Add", second[0], graph.add("Mul", second[1], np.array(0.5))))
            columns[1] = graph.add("Add", columns[1], noise)
        outputs = {"mean": columns[0], "std": graph.add("Sqrt", columns[1])}
    for name, value in outputs.items():
        graph.nodes.append(helper.make_node("Identity", [value], [name]))
    d = len(model.features)
    inputs = [helper.make_tensor_value_info("X", TensorProto.DOUBLE, ["n", d])]
    if model.columns:
        kinds = [TensorProto.STRING if c.levels else TensorProto.DOUBLE for c in model.columns]
        inputs = [helper.make_tensor_value_info(c.name, k, ["n", 1]) for c, k in zip(model.columns, kinds)]
    shape: list[str | int | None] = ["n", len(model.classes)] if model.classes else ["n"]
    ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name in outputs]
    made = helper.make_graph(graph.nodes, "inducing", inputs, ends, graph.constants)
    whole = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8
    )
    names = {"features": json.dumps(model.features), "classes": json.dumps(model.classes)}
    helper.set_model_props(whole, names)
    onnx.checker.check_model(whole)
    return whole.SerializeToString()


class _Graph:
    """Nodes and constants of an ONNX graph, added one by one."""

    def __init__(self, helper: Any, numpy_helper: Any, taken: list[str]) -> None:
        self.helper, self.numpy_helper = helper, numpy_helper
        self.prefix = "_" * (1 + max((len(name) for name in taken), default=0))  # begins no name taken
        self.X = "X"  # the features (n, d)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: str | np.ndarray, **attributes: Any) -> str:
        """Add a node, with arrays among its inputs as constants; return the name of its output."""
        names = []
        for given in inputs:
            if not isinstance(given, str):
                name = f"{self.prefix}c{len(self.constants)}"
                self.constants.append(self.numpy_helper.from_array(np.array(given), name))
                given = name
            names.append(given)
        output = f"{self.prefix}t{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, names, [output], **attributes))
        return output

    def column(self, column: ExportedColumn) -> list[str]:
        """Add the features of a column: an output (n, 1), or (n, levels) and perhaps (n, 1) of others."""
        if not column.levels:
            return [self.add("Sub", column.name, np.array(column.origin))]
        options = dict(cats_strings=list(column.levels), zeros=int(column.unseen != "error"))
        seen = self.add("OneHotEncoder", column.name, domain="ai.onnx.ml", **options)  # (n, 1, levels)
        seen = self.add("Cast", self.add("Squeeze", seen, np.array([1])), to=11)  # doubles
        if column.unseen != "other":
            return [seen]
        return [seen, self.add("Sub", np.array(1.0), self.add("ReduceSum", seen, np.array([1])))]

    def kernel(self, f: Functions) -> tuple[str, str]:
        """Add the functions at X (n, m), and k(x, x) (n, 1)."""
        K = whole = ""
        X = self.with_hats(f.hats) if len(f.hats) else self.X
        for variance, leaves in f.terms:
            zero = self.add("Mul", self.add("Gather", self.X, np.array([0]), axis=1), np.array(0.0))
            own = self.add("Add", zero, np.array(variance))
            product = self.add("Add", own, np.zeros(f.centers.shape[1]))
            for leaf in leaves:
                values, here = self.leaf(leaf, f, X)
                product = self.add("Mul", product, values)
                own = self.add("Mul", own, here) if here else own
            K, whole = (self.add("Add", K, product), self.add("Add", whole, own)) if K else (product, own)
        return K, whole

    def with_hats(self, hats: np.ndarray) -> str:
        """Add X with columns for its hats, or warps where c = b. (n, d + L)"""
        x, (a, b, c) = self.add("Gather", self.X, hats[:, 0].astype(int), axis=1), hats[:, 1:].T
        rising = self.add("Div", self.add("Sub", x, a), b - a)
        falling = self.add("Div", self.add("Sub", c, x), np.where(c > b, c - b, 1.0))
        own = self.add("Max", self.add("Min", rising, falling), np.zeros(1))
        if np.any(warps := c == b):
            own = self.add("Where", warps, self.asinh(rising), own)
        return self.add("Concat", self.X, own, axis=1)

    def asinh(self, t: str) -> str:
        """Add asinh t = sign(t) log(|t| + √(t² + 1)): runtimes have no Asinh of doubles."""
        root = self.add("Sqrt", self.add("Add", self.add("Mul", t, t), np.ones(1)))
        return self.add(
            "Mul", self.add("Sign", t), self.add("Log", self.add("Add", self.add("Abs", t), root))
        )

    def leaf(self, leaf: Leaf, f: Functions, X: str) -> tuple[str, str]:
        """Add a leaf at all functions (n, m), and at X itself (n, 1), or "" where that is 1."""
        x, v = self.add("Gather", X, leaf.columns, axis=1), f.centers[leaf.columns].T  # (n, c), (m, c)
        if leaf.kind == LINEAR:
            origin = f.origin[leaf.columns]
            x = self.add("Sub", x, origin)
            values = self.add("MatMul", x, ((v - origin) * leaf.precisions[:, 0]).T)
            return values, self.add("MatMul", self.add("Mul", x, x), leaf.precisions)
        apart = self.add("Sub", self.add("Unsqueeze", x, np.array([1])), v)  # (n, m, c)
        scaled = self.add("Mul", self.add("Mul", apart, apart), leaf.precisions.T)
        s = self.add("Squeeze", self.add("ReduceSum", scaled, np.array([2])), np.array([2]))
        return self.profile(s, leaf.kind, leaf.shape), ""

    def process(self, p: Folded, K: str, whole: str) -> tuple[str, str]:
        """Add mean and variance of a process. (n, 1) each"""
        linear = self.add("Add", self.add("MatMul", self.X, p.slope[:, None]), np.array(p.bias))
        mean = self.add("Add", self.add("MatMul", K, p.alpha[:, None]), linear)
        TK = self.add("MatMul", K, p.T.T)
        squares = self.add("ReduceSum", self.add("Mul", TK, TK), np.array([1]))
        if p.share > 0.0:
            squares = self.add("Sub", self.add("Mul", whole, np.array(p.share)), squares)
        return mean, self.add("Add", squares, np.array(p.floor))

    def profile(self, s: str, number: int, shape: float) -> str:
        if number == 0:
            return self.add("Exp", self.add("Mul", s, np.array(-0.5)))
        if number == RATIONAL:
            base = self.add("Log", self.add("Add", self.add("Div", s, np.array(2.0 * shape)), np.array(1.0)))
            return self.add("Exp", self.add("Mul", base, np.array(-shape)))
        r = self.add("Sqrt", self.add("Mul", s, np.array(float(2 * number - 1))))
        decay = self.add("Exp", self.add("Neg", r))
        if number == 1:
            return decay
        height = self.add("Add", r, np.array(1.0))
        if number == 3:
            height = self.add("Add", height, self.add("Mul", self.add("Mul", r, r), np.array(1.0 / 3.0)))
        return self.add("Mul", height, decay)

    def probabilities(self, mean: str, variance: str, model: Exported) -> str:
        """Add the probabilities of all classes, from the log odds of each by the nodes of Mills' ratio."""
        z = self.add("Div", mean, self.add("Sqrt", self.add("Add", variance, np.array(model.noise))))
        t = self.add("Abs", z)
        decays = self.add("Exp", self.add("Mul", self.add("Unsqueeze", t, np.array([2])), -MILLS_NODES))
        ratio = self.add("Squeeze", self.add("MatMul", decays, MILLS_WEIGHTS[:, None]), np.array([2]))
        half = self.add("Mul", self.add("Mul", t, t), np.array(-0.5))
        half = self.add("Sub", half, np.array(0.5 * np.log(2.0 * np.pi)))
        tail = self.add("Add", half, self.add("Log", ratio))
        rest = self.add("Log", self.add("Sub", np.array(1.0), self.add("Exp", tail)))
        odds = self.add("Mul", self.add("Sign", z), self.add("Sub", rest, tail))
        if len(model.processes) == 1:
            odds = self.add("Concat", self.add("Mul", odds, np.array(0.0)), odds, axis=1)
        return self.add("Softmax", odds, axis=1)
