"""A predictor as an ONNX graph of standard operators, in doubles; its formulas are in `exports.py`."""

import json
from typing import Any

import numpy as np

from .. import package
from .exports import MILLS_NODES, MILLS_WEIGHTS, Exported, ExportedColumn, ExportedProcess, Functions


def to_onnx(model: Exported) -> bytes:
    """A graph of standard operators: X (n, d) of doubles gives mean and std (n,), or p (n, classes). Columns
    of a table are inputs (n, 1) by their names, text where they have levels.
    """
    onnx = package("onnx")
    TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper
    graph = _Graph(helper, numpy_helper)
    if model.columns:
        graph.X = graph.add("Concat", *(part for c in model.columns for part in graph.column(c)), axis=1)
    parts = [graph.process(p, model.functions[p.functions]) for p in model.processes]
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
    d = model.functions[0].centers.shape[1]
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
    told = {"features": json.dumps(model.features), "classes": json.dumps(model.classes)}
    helper.set_model_props(whole, told)
    onnx.checker.check_model(whole)
    return whole.SerializeToString()


class _Graph:
    """Nodes and constants of an ONNX graph, added one by one."""

    def __init__(self, helper: Any, numpy_helper: Any) -> None:
        self.helper, self.numpy_helper = helper, numpy_helper
        self.X = "X"  # the features (n, d)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: str | np.ndarray, **attributes: Any) -> str:
        """Add a node; arrays among its inputs become constants. Returns the name of its output."""
        names = []
        for given in inputs:
            if not isinstance(given, str):
                name = f"c{len(self.constants)}"
                self.constants.append(self.numpy_helper.from_array(np.array(given), name))
                given = name
            names.append(given)
        self.nodes.append(self.helper.make_node(kind, names, [f"t{len(self.nodes)}"], **attributes))
        return f"t{len(self.nodes) - 1}"

    def column(self, column: ExportedColumn) -> list[str]:
        """The features of a column. (n, 1) or (n, levels), and (n, 1) of all others"""
        if not column.levels:
            return [self.add("Sub", column.name, np.array(column.origin))]
        options = dict(cats_strings=list(column.levels), zeros=int(column.unseen != "error"))
        seen = self.add("OneHotEncoder", column.name, domain="ai.onnx.ml", **options)  # (n, 1, levels)
        seen = self.add("Cast", self.add("Squeeze", seen, np.array([1])), to=11)  # doubles
        if column.unseen != "other":
            return [seen]
        return [seen, self.add("Sub", np.array(1.0), self.add("ReduceSum", seen, np.array([1])))]

    def process(self, p: ExportedProcess, f: Functions) -> tuple[str, str]:
        """Mean and variance of a process. (n, 1) each"""
        apart = self.add("Sub", self.add("Unsqueeze", self.X, np.array([1])), f.centers)  # (n, m, d)
        s = self.add("ReduceSum", self.add("Mul", self.add("Mul", apart, apart), f.precisions), np.array([2]))
        K = self.add("Squeeze", self.profile(s, f.profile), np.array([2]))
        K = self.add("Mul", K, f.heights)  # (n, m)
        linear = self.add("Add", self.add("MatMul", self.X, p.slope[:, None]), np.array(p.bias))
        mean = self.add("Add", self.add("MatMul", K, p.alpha[:, None]), linear)
        TK = self.add("MatMul", K, p.T.T)
        squares = self.add("ReduceSum", self.add("Mul", TK, TK), np.array([1]))
        return mean, self.add("Add", self.add("Mul", squares, np.array(p.sign)), np.array(p.prior))

    def profile(self, s: str, number: int) -> str:
        if number == 0:
            return self.add("Exp", self.add("Mul", s, np.array(-0.5)))
        r = self.add("Sqrt", self.add("Mul", s, np.array(float(2 * number - 1))))
        decay = self.add("Exp", self.add("Neg", r))
        if number == 1:
            return decay
        height = self.add("Add", r, np.array(1.0))
        if number == 3:
            height = self.add("Add", height, self.add("Mul", self.add("Mul", r, r), np.array(1.0 / 3.0)))
        return self.add("Mul", height, decay)

    def probabilities(self, mean: str, variance: str, model: Exported) -> str:
        """Those of all classes from the log odds of each, whose tails are by the nodes of Mills' ratio."""
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
