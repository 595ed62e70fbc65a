"""The README's example runs and prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


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
