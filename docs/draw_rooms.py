"""Draw the rooms of src/inducing and the imports between them: `python docs/draw_rooms.py` writes
docs/images/rooms.png.

The imports are read from the source, late ones among them; tests/test_house.py holds them to their order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1] / "src" / "inducing"
ROOMS = {  # in their order: a room imports only from those before it
    "numerics": "arrays, algebra, threads",
    "model": "kernels, bases, table, posterior",
    "files": "bytes on disk",
    "sources": "rows, tables, clusters",
    "engine": "the evidence: passes over rows",
    "inference": "ways to make a posterior",
    "learning": "ways to choose the model",
    "beside": "methods nothing needs",
    "streams": "rows as they come",
    "pictures": "plots, films",
    "estimators": "the scikit-learn surface",
    "cli": "one file a command",
}


@dataclass(frozen=True)
class Import:
    """One name that a module imports from the package."""

    module: str  # "cli/large.py"
    target: tuple[str, ...]  # ("sources", "parquet", "from_parquet")
    line: int

    @property
    def rooms(self) -> tuple[str, str]:
        """The rooms at its two ends; a file at the top of the package stands for itself."""
        return self.module.partition("/")[0].removesuffix(".py"), self.target[0]


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the package by its path, parsed."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imports(module: str, tree: ast.Module) -> Iterator[Import]:
    """Every import of the package in a module, inside functions too, but not for type checkers alone."""
    package = ("inducing", *module.split("/")[:-1])
    for node in _run(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                path = tuple(alias.name.split("."))
                if path[0] == "inducing":
                    yield Import(module, path[1:] or ("__init__",), node.lineno)
        elif isinstance(node, ast.ImportFrom):
            named = tuple(node.module.split(".")) if node.module else ()
            base = (*package[: len(package) - node.level + 1], *named) if node.level else named
            if base[0] == "inducing":
                for alias in node.names:
                    yield Import(module, (*base[1:], alias.name), node.lineno)


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree but for the bodies of `if TYPE_CHECKING`."""
    yield node
    for child in ast.iter_child_nodes(node):
        if (
            isinstance(child, ast.If)
            and isinstance(child.test, ast.Name)
            and child.test.id == "TYPE_CHECKING"
        ):
            continue
        yield from _run(child)


def edges() -> dict[tuple[str, str], int]:
    """How many imports lead from one room to another."""
    counts: dict[tuple[str, str], int] = {}
    for module, tree in modules():
        for found in imports(module, tree):
            here, there = found.rooms
            if here in ROOMS and there in ROOMS and here != there:
                counts[here, there] = counts.get((here, there), 0) + 1
    return counts


def direct(found: dict[tuple[str, str], int]) -> list[tuple[str, str]]:
    """The imports that no other imports imply: those whose ends are not joined through a third room."""

    def reached(here: str, there: str) -> set[str]:
        rooms, waiting = set(), [b for a, b in found if a == here and b != there]
        while waiting:
            room = waiting.pop()
            if room not in rooms:
                rooms.add(room)
                waiting += [b for a, b in found if a == room]
        return rooms

    return [(here, there) for here, there in found if there not in reached(here, there)]


def places(arrows: list[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """Where the boxes stand: each below all that import from it, side by side so that few arrows cross."""
    depth: dict[str, int] = {}
    for room in reversed(ROOMS):
        depth[room] = 1 + max((depth[a] for a, b in arrows if b == room), default=-1)
    rows = [[room for room in ROOMS if depth[room] == d] for d in range(1 + max(depth.values()))]
    place = {room: (float(x), float(-depth[room])) for row in rows for x, room in enumerate(row)}
    for row in rows * 3:  # row by row, the others as they are
        trials = [
            place | {room: (x, place[room][1]) for x, room in zip(xs, row, strict=True)}
            for xs in permutations((0.0, -1.0, 1.0), len(row))
        ]
        place = min(trials, key=lambda trial: _tangle(trial, arrows))
    return place


def _tangle(place: dict[str, tuple[float, float]], arrows: list[tuple[str, str]]) -> float:
    """Crossings of arrows, arrows through boxes (counted twice), and a little for their length."""

    def at(arrow: tuple[str, str], height: float) -> float:
        (x, y), (x2, y2) = place[arrow[0]], place[arrow[1]]
        return x + (x2 - x) * (y - height) / (y - y2)

    total = 0.0
    for i, first in enumerate(arrows):
        top, bottom = place[first[0]][1], place[first[1]][1]
        total += 0.01 * abs(place[first[0]][0] - place[first[1]][0])
        for x, y in place.values():
            total += 2.0 * (bottom < y < top and abs(at(first, y) - x) < 0.6)
        for second in arrows[:i]:
            low = max(bottom, place[second[1]][1]) + 0.01
            high = min(top, place[second[0]][1]) - 0.01
            total += (
                low < high and (at(first, low) - at(second, low)) * (at(first, high) - at(second, high)) < 0
            )
    return total


def draw(path: Path) -> None:
    """Draw the rooms with arrows to what they import from, and beside them how many imports there are."""
    from inducing.pictures import plots

    order = list(ROOMS)
    found = {(a, b): n for (a, b), n in edges().items() if order.index(b) < order.index(a)}
    figure = plots.canvas(13.5, 8.2)
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.05))
    arrows = direct(found)
    place = places(arrows)
    for here, there in arrows:
        (x, y), (x2, y2) = place[here], place[there]
        style = dict(arrowstyle="-|>", color=plots.BLUE, linewidth=1.8, shrinkA=0, shrinkB=0)
        left.annotate("", (x2, y2 + 0.29), (x, y - 0.29), arrowprops=style)
    for room, (x, y) in place.items():
        box = dict(boxstyle="round,pad=0.35", facecolor="#f4f7fa", edgecolor=plots.INK, linewidth=1.0)
        text = f"$\\bf{{{room}}}$\n{ROOMS[room]}"
        left.text(x, y, text, ha="center", va="center", fontsize=9.5, color=plots.INK, bbox=box, zorder=3)
    left.set(xlim=(-1.6, 1.6), ylim=(min(y for _, y in place.values()) - 0.5, 0.5))
    left.set_title("An arrow: imports from. What a chain of arrows implies is left out.", fontsize=10)
    left.axis("off")
    for (here, there), n in found.items():
        x, y = order.index(there), order.index(here)
        right.text(x, y, str(n), ha="center", va="center", fontsize=9.5, color=plots.INK, zorder=3)
        right.add_patch(_cell(x, y, plots.BLUE, 0.12 + 0.5 * min(n, 100) / 100))
    right.plot([-0.5, 11.5], [-0.5, 11.5], color=plots.INK, linewidth=0.8)
    right.set(xlim=(-0.5, 11.5), ylim=(-0.5, 11.5), aspect="equal")
    right.set_xticks(range(12), order, rotation=45, ha="right")
    right.set_yticks(range(12), order)
    right.spines[["top", "right"]].set_visible(False)
    right.set_title("Names that a room (left) imports from another (below)", fontsize=10)
    plots.save(left, path, dpi=100)


def _cell(x: float, y: float, colour: str, alpha: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, facecolor=colour, alpha=alpha, linewidth=0)


if __name__ == "__main__":
    draw(Path(__file__).parent / "images" / "rooms.png")
