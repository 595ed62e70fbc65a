"""The report of an experiment: claims beside findings, tables and pictures, as a page people can read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
class Why:
    """A reason for a claim that did not hold, the test of it and whether that shows it (None: unclear)."""

    claim: str
    reason: str
    found: str
    shown: bool | None


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
    whys: list[Why] = field(default_factory=list)
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

    def why(self, claim: str, reason: str, found: str, shown: bool | None) -> None:
        """Say why claims whose text begins so do not hold, and by what test; nothing of those that hold."""
        for one in self.claims:
            if one.text.startswith(claim) and one.holds is not True:
                self.whys.append(Why(one.text, reason, found, None if shown is None else bool(shown)))

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.tables.append(
            Table(title, tuple(header), tuple(tuple(str(cell) for cell in row) for row in rows))
        )

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        """function(*job) of every job, in as many processes as EXPERIMENTS_JOBS says, else in this one.

        Jobs are tuples of plain numbers and texts. What is finished is kept in the file that
        EXPERIMENTS_PARTS names, if it does, and not computed again: a run that was stopped goes on, and
        runs of several machines are put together by putting their lines together.
        """
        named = os.environ.get("EXPERIMENTS_PARTS", "")
        keys = [json.dumps([f"{function.__module__}.{function.__name__}", *job]) for job in jobs]
        found = dict.fromkeys(keys)
        if named and Path(named).exists():
            lines = Path(named).read_text(encoding="utf-8").splitlines()
            known = {part["part"]: part["result"] for part in map(json.loads, lines)}
            found |= {key: known[key] for key in found if key in known}
            self.stored |= any(key in known for key in found)
        todo = [key for key, result in found.items() if result is None]
        for key, result in _in_processes(function, todo):
            found[key] = result
            if named:
                with Path(named).open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"part": key, "result": result}) + "\n")
        return [found[key] for key in keys]

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
        if self.whys:
            marks[None] = "unclear"
            rows = [(why.claim, why.reason, why.found, marks[why.shown]) for why in self.whys]
            parts.append("## Why not\n\n" + markdown_table(("claim", "reason", "test", "shown"), rows))
        parts += [f"![{file}]({file})" for file in files]
        for table in self.tables:
            parts.append(f"## {table.title}\n\n" + markdown_table(table.header, table.rows))
        if self.notes:
            parts.append("## Notes\n\n" + "\n".join(f"- {note}" for note in self.notes))
        return "\n\n".join(parts) + "\n"


def _in_processes(function: Callable[..., Any], keys: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Keys of jobs with their results, as they come."""
    count = min(int(os.environ.get("EXPERIMENTS_JOBS", "1")), len(keys))
    if count < 2:
        yield from (_one(function, key) for key in keys)
        return
    from joblib import Parallel, delayed

    yield from Parallel(n_jobs=count, return_as="generator_unordered")(
        delayed(_one)(function, k) for k in keys
    )


def _one(function: Callable[..., Any], key: str) -> tuple[str, Any]:
    return key, json.loads(json.dumps(function(*json.loads(key)[1:]), default=_plain))


def at_most(values: Any, target: float) -> bool | None:
    """Whether runs have at most the paper's number on average; None where two standard errors reach it."""
    values = np.asarray(values, dtype=float)
    error = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else 0.0
    return True if values.mean() <= target else None if values.mean() - 2.0 * error <= target else False


def together(parts: Iterable[bool | None]) -> bool | None:
    """No where one part is no, open where one is open, else yes."""
    parts = list(parts)
    return False if False in parts else None if None in parts else True


def within_chance(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether the mean of paired differences is less than two standard errors from 0."""
    gaps = np.asarray(first) - np.asarray(second)
    return len(gaps) > 1 and abs(gaps.mean()) < 2.0 * gaps.std(ddof=1) / np.sqrt(len(gaps))


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
