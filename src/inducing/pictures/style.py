"""The style of all pictures: colours that everybody can tell apart, quiet axes, files written whole."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from .. import package
from ..files.atomic import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Picture = TypeVar("Picture", "Axes", "Figure")
# of Okabe and Ito: told apart with any colour vision, and in grey by the first two
INK, BLUE, RED = "#2b2b2b", "#0072b2", "#d55e00"
COLOURS = (BLUE, RED, *"#009e73 #cc79a7 #e69f00 #56b4e9 #7a7a7a #882255 #44aa99".split())  # of many lines
HEIGHTS, SPREADS = "viridis", "cividis"  # colour maps, even in lightness


def canvas(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """Make an empty figure outside of pyplot's windows and state; without a layout panels stay in place."""
    return shown(package("matplotlib.figure").Figure(figsize=(width, height), layout=layout))


def figure(width: float = 8.0, height: float = 4.5) -> Axes:
    """Make axes on a figure of their own."""
    return shown(plain(canvas(width, height).subplots()))


def shown(picture: Picture) -> Picture:
    """Return the picture with the method by which notebooks show it, whatever their backend."""
    picture._repr_png_ = partial(_png, picture)  # type: ignore[attr-defined]
    return picture


def _png(picture: Axes | Figure) -> bytes:
    file = BytesIO()
    cast("Figure", picture.figure).savefig(file, format="png", dpi=100)
    return file.getvalue()


def plain(ax: Axes) -> Axes:
    """Take the frame off the axes and put a faint grid behind them."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="#e6e6e6", linewidth=0.8)
    ax.set_axisbelow(True)
    return ax


def save(picture: Axes | Figure, path: Path | str, *, dpi: int = 150) -> Path:
    """Write the picture to a file of the suffix's kind, PNG for instance: whole or not at all."""
    path, picture = Path(path), cast("Figure", picture.figure)
    with replacing(path) as temporary:
        picture.savefig(temporary, dpi=dpi)
    return path
