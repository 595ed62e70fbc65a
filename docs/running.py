"""Run what the documents show, and compare what it prints with what they say it prints.

Two forms are run. In a Markdown page the Python blocks follow each other in one namespace, after the code
of a comment `<!-- setup … -->`, which readers do not see; a block without a language directly after one of
them is what it prints. A script of docs/tutorials/ is a page of its own: comments are its text, and lines
that begin with `# >` what the code above them prints. Numbers may differ in their last digits, as other
BLAS libraries take other ways; words may not.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.\d+|\.\d+|\d+)(?:e[-+]?\d+)?(?![\w])")
RELATIVE, ABSOLUTE = 0.05, 0.015  # by which a number may differ


class Chunk(NamedTuple):
    """A part of a document: "text", "code" or "output", and the line it begins in."""

    kind: str
    content: str
    line: int


def script_chunks(script: str) -> list[Chunk]:
    """The parts of a tutorial's script."""
    chunks: list[Chunk] = []
    for number, line in enumerate(script.splitlines(), 1):
        kind = "output" if line.startswith("# >") else "text" if line.startswith("#") else "code"
        shown = line if kind == "code" else re.sub(r"^#( >)? ?", "", line)
        if not line.strip() or (chunks and chunks[-1].kind == kind):
            if chunks:
                chunks[-1] = chunks[-1]._replace(content=f"{chunks[-1].content}{shown}\n")
        else:
            chunks.append(Chunk(kind, f"{shown}\n", number))
    return [chunk._replace(content=chunk.content.strip("\n") + "\n") for chunk in chunks]


def page_chunks(page: str) -> list[Chunk]:
    """The Python blocks of a Markdown page, the setup before them, and what they print."""
    pattern = (
        r"<!-- setup\n(?P<setup>.*?)-->"
        r"|```python[^\n]*\n(?P<code>.*?)```(?:\n+(?:prints\n+)?```\n(?P<output>.*?)```)?"
    )
    chunks = []
    for found in re.finditer(pattern, page, re.S):
        line = page[: found.start()].count("\n") + 1
        chunks.append(Chunk("code", found["setup"] or found["code"], line))
        if found["output"] is not None:
            chunks.append(Chunk("output", found["output"], line))
    return chunks


def run(chunks: list[Chunk], name: str) -> None:
    """Run the code of a document in the current folder; raise if it prints something else than is shown."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for chunk in chunks:
        if chunk.kind == "code":
            stream = io.StringIO()
            code = compile("\n" * chunk.line + chunk.content, name, "exec")
            with contextlib.redirect_stdout(stream), warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", module="(mapie|optuna|shap|skopt|river|tqdm)")
                exec(code, scope)
            printed = stream.getvalue()
        elif chunk.kind == "output":
            difference = differs(printed, chunk.content)
            if difference:
                raise AssertionError(f"{name}, line {chunk.line}: {difference}")


def differs(printed: str, shown: str) -> str:
    """Say how two outputs differ, beyond the last digits of their numbers; empty if they do not."""
    words = [" ".join(NUMBER.sub("#", text).split()) for text in (printed, shown)]
    if words[0] != words[1]:
        return f"it prints\n{printed}\nbut shows\n{shown}"
    for a, b in zip(*(NUMBER.findall(text) for text in (printed, shown)), strict=True):
        if abs(float(a) - float(b)) > RELATIVE * abs(float(b)) + ABSOLUTE:
            return f"it prints {a} where {b} is shown, in\n{printed}"
    return ""


def markdown(chunks: list[Chunk]) -> str:
    """The page of a tutorial's script."""
    forms = {"text": "{}", "code": "```python\n{}```\n", "output": "```\n{}```\n"}
    return "\n".join(forms[chunk.kind].format(chunk.content) for chunk in chunks)


def main() -> None:
    """Run the pages named on the command line, each in an empty folder."""
    for name in sys.argv[1:]:
        page = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            run_page(page)
        print(f"{name}: what it shows is what it prints")


def run_page(path: Path) -> None:
    """Run the blocks of a Markdown page."""
    run(page_chunks(path.read_text(encoding="utf-8")), path.name)


if __name__ == "__main__":
    main()
