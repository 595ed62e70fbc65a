"""The index of all pages: every figure and table of the five documents in order, with verdicts and times."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import EXPERIMENTS
from .report import markdown_table

DOCUMENTS = {
    "000": "Walder, Kim & Schölkopf 2008, Sparse multiscale Gaussian process regression",
    "001": "Snelson & Ghahramani 2006, Sparse Gaussian processes using pseudo-inputs",
    "002": "Williams 2006, Eigenfunctions and approximation methods (slides)",
    "003": "Quiñonero-Candela & Rasmussen 2005, A unifying view",
    "004": "Csató 2002, Gaussian processes: iterative sparse approximations",
}
# document, place in it, what it shows, pages; an illustration has the page whose numbers rest on it
PLACES = """
000 | Fig. 1 | four basis functions on a toy | W1
000 | Fig. 2a | kin-40k, error | W2
000 | Fig. 2b | pumadyn-32nm, error | W3
000 | Fig. 2c | deviation of the widths | W4
000 | §5 | random starts, -basis against -full on pumadyn | W6
000 | §§1, 6 | kernel ridge regression and SVM | W5
001 | Fig. 1 | all pseudo-inputs on the left | S1
001 | Fig. 2 | samples of the two priors | S2
001 | Fig. 3, top | kin-40k | S3
001 | Fig. 3, bottom | pumadyn-32nm | S4
001 | Fig. 4 | input-dependent noise | S6
001 | §3 | PLV's evidence or SPGP's | S5
001 | fn 2, §5 | re-selection, chunks, stochastic gradients, labels | S7
002 | eigenfunctions, 5 plots | two clusters, ℓ = 0.2 and 0.4 | E1
002 | what is really going on | shrinkage by λ/(λ + σ²/n) | E4
002 | stationary kernels | sinusoids, Matérn's spectrum, decay | E4 E5
002 | linear systems | conjugate gradients, fast products | E3
002 | subset of data | screening by neighbours | E4
002 | complexity table | storage, times | E5 Q2
002 | table of results | SARCOS | E2
002 | curves of time, 3 plots | error against time, greedy or random | E4 E5
003 | Figs 1-4 | graphs of the approximations | Q6
003 | Fig. 5 | the toy, six panels | Q1
003 | Table 1, Remarks 4-15 | the algebra and its cost | Q2
003 | fn 7, §8.1, §9 | SoD's variance, augmentation, Laplace, priors | Q5
003 | §10.2 | relevance vectors, healed | Q3
003 | §11 | PITC with learned inputs | Q4
004 | Fig. 2.1 | RBF and polynomial kernels | C1
004 | Fig. 2.2 | online learning (illustration) | C1
004 | Fig. 3.1 | projection in the feature space (illustration) | C16
004 | Fig. 3.2 | successive divergences | C2
004 | Fig. 3.3 | the parameters decomposed (illustration) | C16
004 | Fig. 3.4 | errors of the simple score | C3
004 | eqs 3.6, 5.43, D.2, E | scores, groups, recursion, diagonal C | C16
004 | §3.6.1, §3.8.1 | predefined bases, orders, queries | C17
004 | §3.8, §4.5 | outliers, Nyström | C11b
004 | Fig. 4.1 | expectation propagation (illustration) | C18
004 | Fig. 5.1 | sinc | C4
004 | Fig. 5.2 | Friedman | C5
004 | Fig. 5.3 | Boston | C6
004 | Fig. 5.4 | Crabs | C7 C11b C18
004 | Fig. 5.5 | Sonar | C8
004 | Fig. 5.6 | USPS | C9 C10
004 | Fig. 5.7 | rejection | C11
004 | Fig. 5.8 | the kernel of densities | C18
004 | Fig. 5.9 | densities | C12 C18
004 | Fig. 5.10 | local likelihoods of winds | C13 C19
004 | Fig. 5.11 | updates of vectors (illustration) | C13
004 | Fig. 5.12 | wind fields | C13
004 | Fig. 5.13 | relative weight (illustration) | C13 C14
004 | Fig. 5.14 | pruned wind fields | C13
004 | §6.1 | mixtures; likelihoods and orders by evidence; sources | C14 C15 C18
004 | Fig. D.1, Table G.1 | the algorithm (its slips are listed in docs/notation.md) | C16
– | beyond the documents | three million flights | F1
"""
MARKS = {"yes": True, "**no**": False, "": None}


def claims_of(page: Path) -> list[tuple[str, bool | None]]:
    """The claims on a page that was written before, and whether they hold."""
    return [(cells[0], MARKS[cells[3]]) for cells in _rows(page, "| claim | paper |")]


def whys_of(page: Path) -> dict[str, tuple[str, str]]:
    """By claim: the reason why it does not hold, and whether a test shows it."""
    return {cells[0]: (cells[1], cells[3]) for cells in _rows(page, "| claim | reason |")}


def _rows(page: Path, head: str) -> list[list[str]]:
    """The cells of a page's table that begins so."""
    lines = page.read_text(encoding="utf-8").split("\n") if page.exists() else []
    start = next((i for i, line in enumerate(lines) if line.startswith(head)), len(lines))
    table = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    return [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table
    ]


def counted(claims: Sequence[tuple[str, bool | None]]) -> str:
    """Verdicts in a few words: 3 yes, 1 no, 1 open."""
    count = Counter(holds for _, holds in claims)
    parts = [
        f"{count[key]} {word}" for key, word in ((True, "yes"), (False, "no"), (None, "open")) if count[key]
    ]
    return ", ".join(parts) or "–"


def write_index(folder: Path) -> Path:
    """Write folder/README.md from the pages in it."""
    pages = {name: folder / name / "README.md" for name in EXPERIMENTS}
    claims = {name: claims_of(page) for name, page in pages.items()}
    everything = [claim for found in claims.values() for claim in found]
    text = [
        "# The documents' figures and tables, and what came out here",
        f"{len(EXPERIMENTS)} pages, {counted(everything)}. Written by `python -m experiments "
        "--index`. A verdict is about a "
        'claim of the document where it makes one, else about the question it leaves open; "open" '
        "is a figure "
        "without a verdict, or a difference within two standard errors. Times are seconds of the run "
        "on the page, "
        "most on two cores shared with other work. The quick form of all pages, "
        "`python -m experiments --all --quick`, took 143 s of one core.",
    ]
    if (folder / "SEEDS.md").exists():
        text.append("Verdicts under three seeds: [SEEDS.md](SEEDS.md).")
    for key, title in DOCUMENTS.items():
        rows = [line.split(" | ") for line in PLACES.strip().split("\n") if line.startswith(key)]
        table = [(place, what, *_cells(names.split(), claims, pages)) for _, place, what, names in rows]
        head = "place", "what", "page", "verdicts", "seconds"
        text.append(f"## [{key}] {title}\n\n" + markdown_table(head, table))
    rest = [line.split(" | ") for line in PLACES.strip().split("\n") if line.startswith("–")]
    table = [(place, what, *_cells(names.split(), claims, pages)) for _, place, what, names in rest]
    text.append(
        "## Beyond them\n\n" + markdown_table(("place", "what", "page", "verdicts", "seconds"), table)
    )
    no = []
    for name, found in claims.items():
        whys = whys_of(pages[name])
        for text_, holds in found:
            if holds is False:
                no.append((f"[{name}]({name}/README.md)", text_, *whys.get(text_, ("–", "untested"))))
    shown = sum(row[-1] == "yes" for row in no)
    text.append(
        f"## What did not hold\n\nEach of the {len(no)} with its reason, and whether the test on its page "
        f"shows "
        f"that ({shown} do).\n\n" + markdown_table(("page", "claim", "reason", "shown"), no)
    )
    file = folder / "README.md"
    file.write_text("\n\n".join(text) + "\n", encoding="utf-8")
    return file


def _cells(
    names: list[str], claims: dict[str, list[tuple[str, bool | None]]], pages: dict[str, Path]
) -> tuple[str, str, str]:
    times = []
    for name in names:
        found = (
            re.search(r"took (\d+) s", pages[name].read_text(encoding="utf-8"))
            if pages[name].exists()
            else None
        )
        times.append(found[1] if found else "stored" if pages[name].exists() else "–")
    links = ", ".join(f"[{name}]({name}/README.md)" for name in names)
    return links, "; ".join(counted(claims[name]) for name in names), ", ".join(times)


def write_seeds(folder: Path, target: Path) -> Path:
    """Write target/SEEDS.md: verdicts of the pages in `folder` beside those in its folders seed-1, seed-2.

    Pages that were not run keep the lines they had there.
    """
    others = sorted(folder.glob("seed-*"), key=lambda path: int(path.name[5:]))
    word: dict[Any, str] = {True: "yes", False: "no", None: "open"}
    names = ["first seed", *(path.name.replace("-", " ") for path in others)]
    head, file = ("page", "claim", *names), target / "SEEDS.md"
    before = _rows(file, f"| {' | '.join(head)} |")
    lines: list[list[str]] = []
    for name in EXPERIMENTS:
        first, *rest = (claims_of(root / name / "README.md") for root in (folder, *others))
        if not first or not all(rest):
            lines += [line for line in before if line[0] == name]
            continue
        for k, (text, holds) in enumerate(first):
            others_say = (run[k][1] if len(run) == len(first) else dict(run).get(text, "–") for run in rest)
            marks = [word.get(mark, "–") for mark in (holds, *others_say)]
            lines.append([name, text, *marks])
    missing = [name for name in EXPERIMENTS if all(line[0] != name for line in lines)]
    same = sum(len(set(line[2:])) == 1 for line in lines)
    text = [
        f"# Verdicts under {len(names)} seeds",
        "The quick form of every page, `python -m experiments --all --quick --seeds 3`: small sizes, "
        "so that a verdict "
        f"here may differ from its page's. {same} of {len(lines)} are the same under all seeds."
        + (f" Not run so: {', '.join(missing)}." if missing else ""),
        markdown_table(head, lines),
    ]
    file.write_text("\n\n".join(text) + "\n", encoding="utf-8")
    return file
