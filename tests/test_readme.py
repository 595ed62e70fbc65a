"""The README's example runs and prints what the README says; paths and names in the documents exist."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import inducing as ig
from docs import reference, running
from docs.build import TUTORIALS, gather, make_site, write_tutorial

ROOT = Path(__file__).parent.parent
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
DOCUMENTS += [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").glob("*.md"))]


RUN = ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]
RUN = [name for name in RUN if running.page_chunks((ROOT / name).read_text(encoding="utf-8"))]


@pytest.mark.parametrize("document", RUN)
def test_code_prints_what_the_document_shows(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    running.run_page(ROOT / document)


def test_experiments_of_the_readme_run_in_a_clone_without_data(tmp_path):
    command = re.search(
        r"python -m (experiments [^#]*?) *#", (ROOT / "README.md").read_text(encoding="utf-8")
    )
    place = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "INDUCING_DATA": str(tmp_path)}
    words = [sys.executable, "-m", *command[1].split(), "--output", str(tmp_path)]
    done = subprocess.run(words, env=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.glob("*/README.md"))
    assert len(pages) == 2 and len(list(tmp_path.glob("*/*.png"))) >= 4
    needs_data = [sys.executable, "-m", "experiments", "W1", "--quick", "--output", str(tmp_path)]
    done = subprocess.run(needs_data, env=place, capture_output=True, text=True)
    assert done.returncode == 1 and re.fullmatch(r"experiments: error: .*snelson1d.*\n", done.stderr)


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_prints_what_it_shows_and_draws_its_pictures(name, tmp_path):
    write_tutorial(name, tmp_path)
    page = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    drawn = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", page)
    assert drawn and all((tmp_path / picture).stat().st_size > 5000 for picture in drawn)


def test_a_difference_is_seen():
    assert running.differs("error 0.30, 95 %", "error 0.31, 95 %") == ""
    assert "0.50" in running.differs("error 0.50", "error 0.31")
    assert "prints" in running.differs("error 0.31", "Error 0.31")
    chunks = running.page_chunks("```python\nprint(2)\n```\n\n```\n3\n```\n")
    with pytest.raises(AssertionError, match="it prints 2 where 3 is shown"):
        running.run(chunks, "page")


def test_every_public_name_has_an_example_that_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = reference.examples_by_name()
    listed = [name for names in reference.PAGES.values() for name in names.split()]
    assert sorted(listed) == sorted(set(ig.__all__) - {"__version__"}) and set(listed) <= set(examples)
    script = (ROOT / "docs" / "examples.py").read_text(encoding="utf-8")
    running.run([running.Chunk("code", script, 0)], "docs/examples.py")


def test_texts_are_quoted_in_signatures():
    def call(way: str = "auto", *, size=3) -> None: ...

    assert reference.signature("call", call) == 'call(way: str = "auto", *, size=3) -> None'


def test_the_site_builds_without_a_warning_and_its_links_lead_somewhere(tmp_path):
    pytest.importorskip("material")
    gather(tmp_path / "pages", tutorials=False)
    for name, text in [
        (p, p.read_text(encoding="utf-8")) for p in (tmp_path / "pages" / "tutorials").glob("*.md")
    ]:
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text):
            (name.parent / picture).write_bytes((ROOT / "docs" / "images" / "demo.png").read_bytes())
    make_site(tmp_path / "pages", tmp_path / "site")
    pages = {page: page.read_text(encoding="utf-8") for page in (tmp_path / "site").rglob("*.html")}
    assert len(pages) > 80
    captions = re.findall(r'alt="([^"]*)"', pages[tmp_path / "site" / "gallery" / "index.html"])
    assert len(captions) > 7 and not any(text.endswith(".png") for text in captions)
    for page, text in pages.items():
        assert not re.findall(r"<(?:script|img|iframe)[^>]*src=\"?(?:https?:)?//", text), page
        assert not re.findall(r"<link[^>]*rel=\"?stylesheet[^>]*href=\"?(?:https?:)?//", text), page
        for link in re.findall(r"(?:href|src)=\"([^\"]*)\"", text):
            path, _, _ = link.partition("#")
            if path and not re.match(r"[a-z]+:", path) and page.name != "404.html":
                assert (page.parent / path.partition("?")[0]).exists(), f"{page.name} leads to {link}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_in_documents_exist(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    homes = (ROOT, ROOT / "src" / "inducing", (ROOT / document).parent, ROOT / "tests")
    named = set(re.findall(r"`([\w./-]+/|[\w./-]+\.(?:py|md|png))`", text))
    linked = {link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link}
    linked -= {"gallery/index.md"} | {f"tutorials/{name}.md" for name in TUTORIALS}  # made with the site
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
