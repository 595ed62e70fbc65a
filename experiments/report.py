"""The report of an experiment: claims beside findings, tables and pictures, as a page people can read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from inducing.files.atomic import replacing

APART = 1_000_000  # the integers that seed two runs are so far apart


@dataclass(frozen=True)
class Claim:
    """A sentence, what the paper printed, what came out here, and whether they agree (None: no telling)."""

    text: str
    paper: str
    found: str
    holds: bool | None = None


@dataclass(frozen=True)
class Table:
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass
class Report:
    """The outcome of one experiment; `write` makes the page, the pictures and the numbers."""

    name: str  # "W1"
    title: str
    source: str  # "000 Fig 1"
    quick: bool
    seed: int = 0
    settings: str = ""  # a sentence or two: data, sizes, seeds, iterations
    claims: list[Claim] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what was learned, and where it differs from the paper
    values: dict[str, Any] = field(default_factory=dict)  # the numbers behind the pictures, JSON-able
    pictures: dict[str, Any] = field(default_factory=dict)  # file stem: a Figure, or a function of a path
    seconds: float = 0.0
    stored: bool = False  # whether runs were kept from before, so that `seconds` is not their time

    def seeds(self, count: int, first: int = 0) -> range:
        """Integers that seed the draws of this run; runs with other seeds have none of them."""
        start = APART * self.seed + first
        return range(start, start + count)

    def rng(self, k: int = 0) -> np.random.Generator:
        """The generator of draw k of this run."""
        return np.random.default_rng(self.seeds(1, k)[0])

    def claim(self, text: str, paper: str, found: str, holds: bool | None = None) -> None:
        self.claims.append(Claim(text, paper, found, None if holds is None else bool(holds)))

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.tables.append(
            Table(title, tuple(header), tuple(tuple(str(cell) for cell in row) for row in rows))
        )

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        """function(*job) of every job, in as many processes as EXPERIMENTS_JOBS says, else in this one."""
        count = int(os.environ.get("EXPERIMENTS_JOBS", "1"))
        if count < 2:
            return [function(*job) for job in jobs]
        from joblib import Parallel, delayed

        return list(Parallel(n_jobs=count)(delayed(function)(*job) for job in jobs))

    @property
    def holds(self) -> bool:
        return all(claim.holds is not False for claim in self.claims)

    def write(self, folder: Path) -> Path:
        """Write the folder's README.md with its pictures, and values.json."""
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for stem, picture in self.pictures.items():
            file = folder / (stem if "." in stem else f"{stem}.png")
            with replacing(file) as temporary:
                picture(temporary) if callable(picture) else picture.savefig(temporary, dpi=110)
            files.append(file.name)
        numbers = json.dumps(self.values, indent=1, default=_plain)
        (folder / "values.json").write_text(numbers + "\n", encoding="utf-8")
        page = folder / "README.md"
        page.write_text(self.markdown(files), encoding="utf-8")
        return page

    def markdown(self, files: Sequence[str] = ()) -> str:
        """The page, with the pictures in these files."""
        kind = "quick form" if self.quick else "full form"
        command = f"python -m experiments {self.name}" + (" --quick" if self.quick else "")
        command += f" --seed {self.seed}" if self.seed else ""
        took = "from stored runs" if self.stored else f"took {self.seconds:.0f} s"
        parts = [f"# {self.name}: {self.title}", f"After [{self.source}]; the {kind}, `{command}`, {took}."]
        if self.settings:
            parts.append(self.settings)
        if self.claims:
            marks = {True: "yes", False: "**no**", None: ""}
            rows = [(claim.text, claim.paper, claim.found, marks[claim.holds]) for claim in self.claims]
            parts.append(markdown_table(("claim", "paper", "here", "holds"), rows))
        parts += [f"![{file}]({file})" for file in files]
        for table in self.tables:
            parts.append(f"## {table.title}\n\n" + markdown_table(table.header, table.rows))
        if self.notes:
            parts.append("## Notes\n\n" + "\n".join(f"- {note}" for note in self.notes))
        return "\n\n".join(parts) + "\n"


def at_most(values: Any, target: float) -> bool | None:
    """Whether runs have at most the paper's number on average; None where two standard errors reach it."""
    values = np.asarray(values, dtype=float)
    error = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else 0.0
    return True if values.mean() <= target else None if values.mean() - 2.0 * error <= target else False


def timed(experiment: Callable[[Report], None], report: Report) -> Report:
    """Fill the report, and note how long that took."""
    start = time.perf_counter()
    experiment(report)
    report.seconds = time.perf_counter() - start
    return report


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; bars inside cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    return value.tolist()
