"""The README's example runs and prints what the README says; paths and names in the documents exist."""

import ast
import contextlib
import io
import re
from pathlib import Path

import pytest

import inducing as ig

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
DOCUMENTS += [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").glob("*.md"))]


def numbers(text: str) -> list[float]:
    return [float(word) for word in re.findall(r"-?\d+\.\d+|\d+", text)]


def test_example_prints_what_the_readme_shows(tmp_path, monkeypatch):
    code, shown = re.search(
        r"<!-- example -->\n```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", README, re.S
    ).groups()
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    got, expected = numbers(printed.getvalue()), numbers(shown)
    assert len(got) == len(expected)
    # other BLAS libraries take other optimisation paths: the last digits may differ
    assert all(abs(a - b) <= 0.05 * abs(b) + 0.015 for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_in_documents_exist(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    homes = (ROOT, ROOT / "src" / "inducing", (ROOT / document).parent, ROOT / "tests")
    named = set(re.findall(r"`([\w./-]+/|[\w./-]+\.(?:py|md|png))`", text))
    linked = {link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link}
    missing = [path for path in named | linked if not any((home / path).exists() for home in homes)]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_names_in_documents_exist(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    for name in set(re.findall(r"\big\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", text)):
        value = ig
        for part in name.split("."):
            assert hasattr(value, part), f"ig.{name}"
            value = getattr(value, part)
    for name in set(re.findall(r"\binducing\.([a-z_]\w*)", text)):
        assert name in ("errors", "metrics", "progress"), f"inducing.{name} is no module"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_code_in_documents_parses_and_its_imports_work(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    for code in re.findall(r"```python\n(.*?)```", text, re.S):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                exec(ast.unparse(node), {})
