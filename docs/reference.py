"""The reference: pages made from signatures, docstrings and the examples of docs/examples.py."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import inducing as ig

PAGES = {  # title of a page: the names on it; a module stands for all it defines
    "Estimators": "SparseGPRegressor SparseGPClassifier OnlineGPRegressor GPDensity MultiscaleKernelRidge "
    "MultiscaleSVM",
    "The core": "condition log_evidence log_evidence_and_gradient leave_one_out Posterior prior "
    "kl_divergence NeighboursPredictor NoiseByLevel Sites approximations",
    "Kernels": "kernels",
    "Bases and means": "bases means selection",
    "Likelihoods": "likelihoods",
    "Learning": "fit Fit LogNormal fit_expectation_propagation diagnose Diagnosis recipes compare",
    "Online and EP": "update update_together information_gain most_informative expectation_propagation",
    "What the model knows": "sobol_indices probability_of_maximum probability_above",
    "Files": "load export distil citation warm",
    "Tables and sources": "TableEncoder as_source sources distributed outofcore datasets",
    "Beside the table": "committee augmentation local iterative products relevance_vectors "
    "sparse_kernel_pca eigenfunctions squared laplace mixture mixtures fields wind wind_model",
    "Pictures": "plots animation",
    "Metrics and messages": "metrics progress errors backend",
}
EXAMPLE = re.compile(r"^# (\w+)\n(.*?)(?=^# |\Z)", re.S | re.M)


def write_pages(folder: Path) -> None:
    """Write a page for each topic, and one that lists all names."""
    folder.mkdir(parents=True, exist_ok=True)
    examples = examples_by_name()
    index = ["# Reference\n", "Every public name, `import inducing as ig`.\n"]
    for title, names in PAGES.items():
        file = title.lower().replace(" ", "-") + ".md"
        index.append(f"\n## [{title}]({file})\n")
        parts = [f"# {title}\n"]
        for name in names.split():
            value = getattr(ig, name)
            index.append(f"- [`ig.{name}`]({file}#{anchor(f'ig.{name}')}): {escaped(first_line(value))}")
            parts += entry(f"ig.{name}", value, 2)
            parts += ["**Example**\n", f"```python\n{examples[name].strip()}\n```\n"]
        (folder / file).write_text("\n".join(parts), encoding="utf-8")
    (folder / "index.md").write_text("\n".join(index) + "\n", encoding="utf-8")


def examples_by_name() -> dict[str, str]:
    """The examples by the name they are of."""
    return dict(EXAMPLE.findall((Path(__file__).parent / "examples.py").read_text(encoding="utf-8")))


def entry(name: str, value: Any, level: int) -> list[str]:
    """Markdown about a function, a class with its methods, or a module with what it defines."""
    heading = f"{'#' * level} `{name}`\n"
    if inspect.ismodule(value):
        parts = [heading, described(value)]
        for inner, thing in members(value):
            parts += entry(f"{name}.{inner}", thing, level + 1)
        return parts
    parts = [heading, f"```python\n{signature(name, value)}\n```\n", described(value)]
    if inspect.isclass(value):
        for inner, method in vars(value).items():
            method = method.__func__ if isinstance(method, classmethod | staticmethod) else method
            if inner.startswith("_") or not inspect.isfunction(method) or not inspect.getdoc(method):
                continue
            parts += [f"**`.{inner}`**\n", f"```python\n{signature(inner, method)}\n```\n", described(method)]
    return parts


def members(module: Any) -> list[tuple[str, Any]]:
    """The public functions and classes of a room's module that have something to say of themselves."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    inside = module.__name__
    found = [(name, getattr(module, name)) for name in names]
    return [
        (name, value)
        for name, value in found
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__.startswith(inside)
        and own_doc(value)
    ]


def own_doc(value: Any) -> str:
    """The docstring, unless Python wrote it: dataclasses get their signature as one."""
    text = inspect.getdoc(value) or ""
    made = dataclasses.is_dataclass(value) and text.startswith(f"{getattr(value, '__name__', '')}(")
    return "" if made else text


def first_line(value: Any) -> str:
    return own_doc(value).split("\n\n")[0].replace("\n", " ").rstrip(":")


def signature(name: str, value: Any) -> str:
    """A call with its parameters, a line each if they are many."""
    try:
        called = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    parameters = [p.replace(annotation=p.annotation) for p in called.parameters.values() if p.name != "self"]
    texts, keyword = [], False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not keyword:
            texts.append("*")
        keyword |= p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        note = "" if p.annotation is p.empty else f": {_plain(p.annotation)}"
        shown = f'"{p.default}"' if isinstance(p.default, str) else _plain(p.default)
        default = "" if p.default is p.empty else f" = {shown}" if note else f"={shown}"
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        texts.append(f"{star}{p.name}{note}{default}")
    back = called.return_annotation
    returns = "" if back is inspect.Signature.empty or inspect.isclass(value) else f" -> {_plain(back)}"
    line = f"{name}({', '.join(texts)}){returns}"
    return line if len(line) <= 90 else f"{name}(\n    " + ",\n    ".join(texts) + f",\n){returns}"


def _plain(value: Any) -> str:
    if isinstance(value, type):
        return value.__name__
    text = value if isinstance(value, str) and " " in value else repr(value)
    text = re.sub(r"<factory>|<(?:function|class|object) [^>]*>|<.* at 0x[0-9a-f]+>", "…", text)
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z]\w)", "", text).replace("ForwardRef", "").strip("'")


def described(value: Any) -> str:
    """A docstring as Markdown: its formulas are indented, its parameters become a list."""
    lines, out, inside = own_doc(value).splitlines(), [], False
    for line, below in zip(lines, [*lines[1:], ""]):
        if below.startswith("----"):
            inside = line.strip() in ("Parameters", "Attributes")
            out.append(f"**{line.strip()}**\n")
        elif line.startswith("----"):
            continue
        elif inside and re.match(r"\w[\w, ]* : ", line):
            name, _, text = line.partition(" : ")
            out.append(f"- `{name}`: {escaped(text)}")
        elif inside and line.startswith("    "):
            out.append(f"  {escaped(line.strip())}")
        else:
            out.append(line if line.startswith(("    ", "|")) else escaped(line))
    return "\n".join(out) + "\n"


def escaped(text: str) -> str:
    """Text in which stars, angles and brackets stand for themselves, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*<\[\]])", r"\\\1", p) for p in parts)


def anchor(heading: str) -> str:
    """What Markdown makes of a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading)).strip().lower()
