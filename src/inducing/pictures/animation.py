"""Films of the optimisation of a basis: `record` keeps its steps, `animate` draws them. [000 §5]"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ShapeError, UnknownNameError, require_one_of
from ..files.atomic import replacing
from ..inference import selection
from ..inference.regression import condition
from ..learning import recipes
from ..learning.recipes import Task
from ..learning.settings import Iterate
from ..learning.stages import Fit
from ..model.bases import Basis, Points, as_multiscale
from ..model.kernels import RBF
from ..model.means import Constant
from ..model.posterior import Posterior
from ..model.problem import as_inputs, as_targets
from ..sources.moments import Columns
from . import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILM_SUFFIXES = (".gif", ".html")
GIF_COLOURS = 64  # few, so that the file stays small


def task_for(
    X: Any,
    y: Any,
    *,
    approximation: str = "fitc",
    n_inducing: int = 8,
    basis: str = "points",
    start: str = "kmeans",
    max_iterations: int = 200,
    rng: Any = 0,
) -> Task:
    """Make a fit to watch, in the units of the data, with an RBF kernel; `start` places the basis, a rule of
    `selection` or "left": in the leftmost tenth of the first input [001 Fig 1].
    """
    X = as_inputs(X)
    y = as_targets(y, X)
    if y.ndim != 1:
        raise ShapeError(f"one target can be watched at a time, but y has shape {y.shape}")
    spread, variance = Columns.of(X).center_and_scale()[1], float(np.var(y)) or 1.0
    kernel, noise = RBF(np.sqrt(X.shape[1]) * spread, variance), 0.1 * variance
    require_one_of("start", start, ("left", *selection.BY_NAME))
    require_one_of("basis", basis, ("points", "multiscale"))
    if start == "left":  # may be fewer rows than basis functions: draw between them
        left = X[X[:, 0] <= X[:, 0].min() + 0.1 * np.ptp(X[:, 0])]
        Z = np.random.default_rng(rng).uniform(left.min(axis=0), left.max(axis=0), (n_inducing, X.shape[1]))
    else:
        Z = selection.BY_NAME[start](X, n_inducing, rng, kernel=kernel, noise=noise, y=y - y.mean())
    first: Basis = as_multiscale(kernel, Points(Z)) if basis == "multiscale" else Points(Z)
    options: dict[str, Any] = dict(max_iterations=max_iterations, progress=False, rng=rng)
    mean = Constant(float(y.mean()))
    return Task(kernel, first, approximation, noise, X, y, mean=mean, fixed=("mean",), **options)


@dataclass(frozen=True, eq=False)
class Recording:
    """A recorded fit: its task, and its steps from the start on."""

    task: Task
    steps: tuple[Iterate, ...]

    def posterior(self, i: int) -> Posterior:
        """Make the posterior at step i by the task's approximation, even if the recipe used another there."""
        step, task = self.steps[i], self.task
        options = {name: getattr(task, name) for name in ("jitter", "blocks", "power", "weights")}
        model = step.kernel, step.basis, task.approximation, step.noise
        posterior = condition(*model, task.X, task.y, mean=step.mean, **options)
        if not isinstance(posterior, Posterior):
            raise UnknownNameError(f"{task.approximation!r} cannot be drawn: choose one without blocks")
        return posterior

    def chosen(self, frames: int) -> np.ndarray:
        """Choose at most `frames` steps, first and last among them, closer together at the start."""
        last = len(self.steps) - 1
        return np.unique(np.round(last * np.linspace(0.0, 1.0, min(frames, last + 1)) ** 2).astype(int))


def record(task: Task, learn: Callable[[Task], Fit] = recipes.direct) -> Recording:
    """Run `learn`, for instance a recipe, and keep its steps; after Ctrl-C those so far."""
    steps: list[Iterate] = []
    learn(replace(task, trace=steps.append))
    return Recording(task, tuple(steps))


def animate(
    recording: Recording, *, frames: int = 60, names: Sequence[str] = ("x", "z"), target: str = "y"
) -> Film:
    """Make a film of the steps for one or two inputs: predictions, basis and its path so far, evidence.

    With one input the lower panel shows the paths of the inducing inputs or, for a multiscale basis, centres
    and widths (v, s) with the kernel's lengthscale as a line [000 Fig 1].
    """
    require_few_inputs(recording.task.X)
    shown = recording.chosen(frames)
    posteriors = [recording.posterior(i) for i in shown]
    evidence = np.array([posterior.log_evidence for posterior in posteriors])
    canvas = plots.canvas(9.6, 5.4, None)
    canvas.subplots_adjust(left=0.08, right=0.98, top=0.85, bottom=0.1)
    ratios = dict(height_ratios=(2.4, 1.0), width_ratios=(2.6, 1.0))
    grid = canvas.add_gridspec(2, 2, **ratios, hspace=0.25, wspace=0.22)
    curve = canvas.add_subplot(grid[:, 1])
    scene: _OneInput | _TwoInputs
    if recording.task.X.shape[1] == 1:
        panels = canvas.add_subplot(grid[0, 0]), canvas.add_subplot(grid[1, 0])
        scene = _OneInput(recording, *panels, names[0], target)
    else:
        scene = _TwoInputs(recording, canvas.add_subplot(grid[:, 0]), names)

    def draw(frame: int) -> None:
        scene.draw(int(shown[frame]), posteriors[frame])
        _draw_evidence(curve, shown, evidence, frame)
        what = f"{recording.task.approximation}, m = {len(posteriors[frame].basis)}"
        canvas.suptitle(f"{what}: iteration {shown[frame]}, log evidence {evidence[frame]:.2f}")

    return Film(canvas, draw, len(shown))


def require_few_inputs(X: np.ndarray) -> None:
    """Raise if X has more than two inputs, which no film can show."""
    if X.shape[1] > 2:
        raise ShapeError(f"an animation needs one or two inputs, but X has {X.shape[1]} columns")


@dataclass(frozen=True, eq=False)
class Film:
    """A film: a figure, a function that draws frame i on it, and the number of frames."""

    canvas: Figure
    draw: Callable[[int], None]
    frames: int

    def save(self, path: Path | str, *, fps: int = 12, dpi: int = 80) -> Path:
        """Write the film as a GIF, or as a page of HTML with buttons: whole or not at all."""
        path = Path(path)
        if path.suffix.lower() not in FILM_SUFFIXES:
            raise UnknownNameError(f"{str(path)!r} must end in one of {' '.join(FILM_SUFFIXES)}")
        with replacing(path) as temporary:
            if path.suffix.lower() == ".gif":
                self._save_gif(temporary, fps, dpi)
            else:
                temporary.write_text(self._html(fps, dpi), encoding="utf-8")
        return path

    def _save_gif(self, path: Path, fps: int, dpi: int) -> None:
        from PIL import Image  # matplotlib brings Pillow

        def image(frame: int) -> Image.Image:
            self.draw(frame)
            buffer = BytesIO()
            self.canvas.savefig(buffer, dpi=dpi, format="png")
            return Image.open(buffer).convert("RGB").quantize(GIF_COLOURS, dither=Image.Dither.NONE)

        first, *rest = [image(frame) for frame in range(self.frames)]
        holds = np.full(self.frames, round(1000 / fps))  # milliseconds
        holds[0], holds[-1] = 600, 2500
        first.save(path, save_all=True, append_images=rest, duration=holds.tolist(), loop=0)

    def _html(self, fps: int, dpi: int) -> str:
        from matplotlib import rc_context
        from matplotlib.animation import FuncAnimation

        def draw(frame: int) -> tuple[()]:
            self.draw(frame)
            return ()

        with rc_context({"savefig.dpi": dpi}):
            return FuncAnimation(self.canvas, draw, self.frames, init_func=lambda: ()).to_jshtml(fps)


def _cleared(ax: Axes) -> Axes:
    ax.clear()
    return plots.plain(ax)


def _draw_evidence(ax: Axes, shown: np.ndarray, evidence: np.ndarray, frame: int) -> None:
    """Draw the log evidence so far; the axes fit all frames but the first ones, which may be far below."""
    _cleared(ax)
    low = evidence[min(2, len(evidence) // 4) :].min()
    room = 0.06 * (evidence.max() - low) + 1e-9
    ax.plot(shown[: frame + 1], evidence[: frame + 1], color=plots.BLUE, linewidth=1.8)
    height = max(evidence[frame], low - room)
    ax.plot(shown[frame], height, "o", color=plots.BLUE, markersize=5, clip_on=False)
    ax.set(xlim=(0, max(1, shown[-1])), ylim=(low - room, evidence.max() + room), xlabel="iteration")
    ax.ticklabel_format(axis="y", useOffset=False)
    ax.set_title("log evidence", fontsize=10)


class _OneInput:
    """The panels for one input: predictions above, below them the paths of the inducing inputs, or widths."""

    def __init__(self, recording: Recording, main: Axes, below: Axes, name: str, target: str) -> None:
        self.recording, self.main, self.below, self.name, self.target = recording, main, below, name, target
        x, y = recording.task.X[:, 0], recording.task.y
        ways = [plots.places(step.basis) for step in recording.steps]
        self.lengthscales = [float(np.ravel(s.kernel.parameters["lengthscale"])[0]) for s in recording.steps]
        self.places = np.array([v[:, 0] for v, _ in ways])  # (steps, m)
        pairs = zip(ways, self.lengthscales, strict=True)
        self.widths = np.array([np.full(len(v), l) if s is None else s[:, 0] for (v, s), l in pairs])
        self.multiscale = any(widths is not None for _, widths in ways)
        low, high = min(x.min(), self.places.min()), max(x.max(), self.places.max())
        self.grid = np.linspace(low - 0.03 * (high - low), high + 0.03 * (high - low), 300)
        self.heights = y.min() - 0.15 * np.ptp(y), y.max() + 0.15 * np.ptp(y)

    def draw(self, i: int, posterior: Posterior) -> None:
        noise, task = float(self.recording.steps[i].noise), self.recording.task
        _cleared(self.main).set_ylim(*self.heights)
        plots.plot_predictions_1d(posterior, task.X, task.y, noise=noise, grid=self.grid, ax=self.main)
        self.main.tick_params(labelbottom=False)
        self.main.set_ylabel(self.target)
        _cleared(self.below).set_xlim(self.grid[0], self.grid[-1])
        self.below.set_xlabel(self.name)
        if self.multiscale:
            self._draw_widths(i)
        else:
            self._draw_paths(i)

    def _draw_paths(self, i: int) -> None:
        ax, last = self.below, max(1, len(self.places) - 1)
        ax.plot(self.places[: i + 1], np.arange(i + 1), color=plots.RED, linewidth=1.2, alpha=0.7)
        height = np.full(self.places.shape[1], i)
        ax.plot(self.places[i], height, "x", color=plots.RED, markersize=6, markeredgewidth=1.6)
        ax.set_yscale("symlog", linthresh=5)  # most happens at the start
        ax.set_ylim(1.2 * last, -0.5)
        ax.set_yticks([tick for tick in (0, 5, 20, 100, 500) if tick <= last])
        ax.yaxis.set_major_formatter("{x:.0f}")
        ax.minorticks_off()
        ax.set_ylabel("iteration")

    def _draw_widths(self, i: int) -> None:
        ax, v, s = self.below, self.places, self.widths
        ax.axhline(self.lengthscales[i], color=plots.INK, linewidth=1)
        ax.plot(v[: i + 1], s[: i + 1], color=plots.RED, linewidth=0.8, alpha=0.35)
        ax.plot(v[i], s[i], "o", color="none", markeredgecolor=plots.RED, markersize=8, markeredgewidth=1.4)
        ax.plot(v[i], s[i], "x", color=plots.RED, markersize=5, markeredgewidth=1.2)
        ax.set_ylim(0.0, 1.1 * min(s.max(), 6.0 * np.median(s)))
        ax.set_ylabel("width")


class _TwoInputs:
    """The panel for two inputs: mean and data in the same colours, the basis and its path."""

    def __init__(self, recording: Recording, main: Axes, names: Sequence[str]) -> None:
        self.recording, self.main, self.names = recording, main, names
        X, y = recording.task.X, recording.task.y
        margin = 0.05 * np.ptp(X, axis=0)
        self.low, self.high = X.min(axis=0) - margin, X.max(axis=0) + margin
        self.sides = [np.linspace(low, high, 60) for low, high in zip(self.low, self.high, strict=True)]
        self.levels = np.linspace(np.quantile(y, 0.01), np.quantile(y, 0.99), 13)
        rows = np.random.default_rng(0).permutation(len(X))[:500]  # more would hide the mean
        self.X, self.y = X[rows], y[rows]
        self.ways = np.array([step.basis.centers for step in recording.steps])  # (steps, m, 2)
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        colours = ScalarMappable(Normalize(self.levels[0], self.levels[-1]), "viridis")
        main.figure.colorbar(colours, ax=main, label="mean, and data")

    def draw(self, i: int, posterior: Posterior) -> None:
        ax, (a, b) = _cleared(self.main), np.meshgrid(*self.sides)
        ax.grid(False)
        mean = np.asarray(posterior.mean(np.column_stack([a.ravel(), b.ravel()]))).reshape(a.shape)
        ax.contourf(a, b, mean, levels=self.levels, cmap="viridis", alpha=0.7, extend="both")
        (east, north), (low, *_, high) = self.X.T, self.levels
        style: dict[str, Any] = dict(s=14, cmap="viridis", edgecolors="white", linewidths=0.5)
        ax.scatter(east, north, c=self.y, vmin=low, vmax=high, label="data", **style)
        for way in self.ways[: i + 1].transpose(1, 0, 2):
            ax.plot(*way.T, color=plots.RED, linewidth=0.9, alpha=0.6)
        plots.draw_basis_2d(ax, self.recording.steps[i].basis)
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False, ncols=2)
        (left, bottom), (right, top) = self.low, self.high
        ax.set(xlim=(left, right), ylim=(bottom, top), xlabel=self.names[0], ylabel=self.names[1])
