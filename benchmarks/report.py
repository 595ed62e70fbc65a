"""Tables in Markdown, and the picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Series = dict[str, list[tuple[float, float]]]  # a curve's name -> points


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Numbers to the right, the first two columns to the left."""
    rule = [":--" if i < 2 else "--:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *rows)) + "\n"


def seconds(t: float) -> str:
    for limit, unit, name in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if t < limit:
            return f"{t * unit:.3g} {name}"
    return f"{t:.3g} s"


def memory(size: float | None) -> str:
    return "" if size is None else f"{max(size, 0.0) / 2**20:,.0f} MiB"


def times(ratio: float) -> str:
    return f"{ratio:.2g} ×" if ratio < 10 else f"{ratio:.0f} ×"


def picture(path: Path, panels: dict[str, tuple[str, Series]]) -> bool:
    """One log-log panel for each of the three sizes; False where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 4.2), sharey=True, squeeze=False)
    names = list(dict.fromkeys(name for _, series in panels.values() for name in series))
    colours: dict[str, Any] = {name: f"C{i % 10}" for i, name in enumerate(names)}
    for axis, (label, (title, series)) in zip(axes[0], panels.items(), strict=True):
        for name, points in series.items():
            ours = name.startswith("inducing")
            axis.loglog(
                *zip(*points, strict=True),
                "o-",
                ms=4,
                lw=2.2 if ours else 1.0,
                color=colours[name],
                label=name,
            )
        sizes = sorted({size for points in series.values() for size, _ in points})
        axis.set_xticks(sizes, [f"{size:,.0f}" for size in sizes], fontsize=8)
        axis.minorticks_off()
        axis.set_xlabel(label)
        axis.set_title(title, fontsize=10)
        axis.grid(True, which="major", alpha=0.3)
    axes[0][0].set_ylabel("seconds, value and gradient")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncol=len(labels), frameon=False, fontsize=9)
    figure.set_layout_engine("constrained")
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return True
