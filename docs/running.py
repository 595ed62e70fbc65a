"""Run what the documents show, and compare what it prints with what they say it prints.

Two forms are run. In a Markdown page the Python blocks follow each other in one namespace, after the code
of a comment `<!-- setup … -->`, which readers do not see; a block without a language directly after one of
them is what it prints. The commands `inducing …` of its indented blocks are run between them; below one that
begins with `$` is what it prints. Those that would wait for a cluster or for more rows are only parsed. A
script of docs/tutorials/ is a page of its own: comments are its text, and lines that begin with `# >` what
the code above them prints. Numbers may differ in their last digits, as other BLAS libraries take other ways;
words may not.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.\d+|\.\d+|\d+)(?:e[-+]?\d+)?(?![\w])")
RELATIVE, ABSOLUTE = 0.05, 0.015  # by which a number may differ
ENDLESS = ("tail ", "tcp://", "--follow", "--workers")  # in commands that need other processes, or never end


class Chunk(NamedTuple):
    """A part of a document: "text", "code", "commands" or "output", and the line it begins in."""

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
    """The Python blocks and commands of a Markdown page, the setup before them, and what they print."""
    pattern = (
        r"<!-- setup\n(?P<setup>.*?)-->"
        r"|```python[^\n]*\n(?P<code>.*?)```(?:\n+(?:prints\n+)?```\n(?P<output>.*?)```)?"
        r"|(?<=\n\n)(?P<shell>(?: {4}[^\n]*\n)+)"
    )
    chunks = []
    for found in re.finditer(pattern, page, re.S):
        line = page[: found.start()].count("\n") + 1
        if found["shell"] is not None:
            chunks += shell_chunks(found["shell"], line)
            continue
        chunks.append(Chunk("code", found["setup"] or found["code"], line))
        if found["output"] is not None:
            chunks.append(Chunk("output", found["output"], line))
    return chunks


def shell_chunks(block: str, line: int) -> list[Chunk]:
    """The commands of an indented block, and what the one after `$` prints; nothing where it has none."""
    lines = [text.strip() for text in block.splitlines()]
    if lines[0].startswith("$ inducing "):
        return [Chunk("commands", lines[0][2:], line), Chunk("output", "\n".join(lines[1:]) + "\n", line)]
    return [Chunk("commands", text, line) for text in lines if re.search(r"(^|\| )inducing ", text)]


def run_command(command: str) -> str:
    """Run a command of this package, and give what it prints; raise if it fails or has no such option. None
    are run where the packages of the command line are not installed.
    """
    if find_spec("typer") is None:
        return ""
    from typer.main import get_command
    from typer.testing import CliRunner

    from inducing.cli import app

    words = shlex.split(command, comments=True)
    words = words[words.index("inducing") + 1 :]
    if any(mark in command for mark in ENDLESS):
        own = get_command(app).commands[words[0]]  # type: ignore[attr-defined]
        own.make_context(words[0], words[1:])
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which the command line says itself
        result = CliRunner().invoke(app, words)
    if result.exit_code:
        raise AssertionError(f"inducing {shlex.join(words)}: {result.output}{result.exception}")
    return result.stdout


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
        elif chunk.kind == "commands":
            printed = run_command(chunk.content)
        elif chunk.kind == "output":
            shown = chunk.content.splitlines()
            if shown and shown[-1] == "…":  # the rest is left out
                lines = len(shown) - 1
                chunk = chunk._replace(content="\n".join(shown[:-1]))
                printed = "\n".join(printed.splitlines()[:lines])
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
        without = "" if find_spec("typer") else "; its commands need inducing[cli] and were not run"
        print(f"{name}: what it shows is what it prints{without}")


def run_page(path: Path) -> None:
    """Run the blocks of a Markdown page."""
    run(page_chunks(path.read_text(encoding="utf-8")), path.name)


if __name__ == "__main__":
    main()
