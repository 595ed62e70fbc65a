"""Scenes of ocean wind for C13: complete 10 × 10 windows of a scatterometer's swath, in the frame of the
flight.

Positions are in units of 100 km on an ideal lattice of 25 km, x across the track to the right, y along it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inducing.model.kernels import Kernel
from inducing.sources import datasets

from .report import Report

SIDE = 10
SPACING = 0.25  # 100 km
EARTH = 6371.0  # km
SPEEDS = 4.0, 24.0  # m/s: the range ERS's winds were specified for


@dataclass(frozen=True, eq=False)
class Scene:
    """True winds at the nodes, row after row along the track."""

    granule: int
    winds: np.ndarray  # (100, 2): to the right of the flight, and along it


def rms(difference: np.ndarray) -> float:
    """The root mean squared length of vectors."""
    return float(np.sqrt(np.mean(np.sum(difference**2, axis=1))))


def lattice() -> np.ndarray:
    """The nodes of every scene. (100, 2)"""
    x, y = np.meshgrid(SPACING * np.arange(SIDE), SPACING * np.arange(SIDE))
    return np.column_stack([x.ravel(), y.ravel()])


@dataclass(frozen=True, eq=False)
class Granule:
    """One pass of the satellite, and the complete windows in it whose mean speed is in the range, in the
    file's order.
    """

    number: int
    places: np.ndarray  # (n, 3): unit vectors
    winds: np.ndarray  # (n, 3): in the same frame, m/s
    windows: np.ndarray  # (windows, 10, 10): rows along the track

    def scenes(self, count: int) -> list[Scene]:
        """So many of the windows, evenly along the granule; one is the middle one."""
        return [self._scene(self.windows[int((j + 0.5) / count * len(self.windows))]) for j in range(count)]

    def _scene(self, window: np.ndarray) -> Scene:
        at = self.places[window]  # (10, 10, 3)
        up = at.mean(axis=(0, 1))
        up /= np.linalg.norm(up)
        flight = (at[-1] - at[0]).mean(axis=0)
        flight -= (flight @ up) * up
        flight /= np.linalg.norm(flight)
        right = np.cross(flight, up)
        if (at[:, -1] - at[:, 0]).mean(axis=0) @ right < 0.0:  # the file counts cells from the other side
            window = window[:, ::-1]
        return Scene(self.number, self.winds[window.ravel()] @ np.column_stack([right, flight]))


def granules() -> list[Granule]:
    """All granules of the day."""
    with np.load(datasets.path("ascat")) as file:
        lonlat, granule = file["lonlat"].astype(float), file["granule"]
        wind = np.column_stack([file["u"], file["v"]]).astype(float)
    places, north, east = _frame(lonlat)  # (n, 3) each
    vectors = wind[:, :1] * east + wind[:, 1:] * north
    passes = []
    for number in np.unique(granule):
        mine = granule == number
        windows = _windows(places[mine])
        speed = np.hypot(*wind[mine].T)[windows].mean(axis=(1, 2))
        chosen = windows[(SPEEDS[0] <= speed) & (speed <= SPEEDS[1])]
        passes.append(Granule(int(number), places[mine], vectors[mine], chosen))
    return passes


def _windows(places: np.ndarray) -> np.ndarray:
    """The cells of every window without a gap. (windows, 10, 10)"""
    from scipy.spatial import cKDTree

    n = len(places)
    step = np.r_[
        EARTH * np.linalg.norm(np.diff(places, axis=0), axis=1), np.inf
    ]  # km to the next cell of the file
    run = np.zeros(n + 1, dtype=int)  # how many cells follow without a gap, across the track
    for i in range(n - 1, -1, -1):
        run[i] = run[i + 1] + 1 if 24.0 < step[i] < 26.0 else 0
    pairs = np.sort(cKDTree(EARTH * places).query_pairs(26.5, output_type="ndarray"), axis=1)
    pairs = pairs[pairs[:, 1] - pairs[:, 0] > 1]
    further = np.full(n + 1, n)  # the cell one step further along the track; n where there is none
    further[pairs[:, 0]] = pairs[:, 1]
    across = np.arange(SIDE)
    rows = [np.flatnonzero(run[:n] >= SIDE - 1)[:, None] + across]  # (windows, 10): the first row of each
    for _ in range(SIDE - 1):
        new = further[rows[-1]]
        whole = (new[:, 0] < n) & (run[new[:, 0]] >= SIDE - 1) & np.all(new == new[:, :1] + across, axis=1)
        rows = [*(row[whole] for row in rows), new[whole]]
    return np.stack(rows, axis=1)


def _frame(lonlat: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit vectors outward, north and east at each place. (n, 3) each"""
    lon, lat = np.radians(lonlat).T
    zero = np.zeros_like(lon)
    return (
        np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)]),
        np.column_stack([-np.sin(lat) * np.cos(lon), -np.sin(lat) * np.sin(lon), np.cos(lat)]),
        np.column_stack([-np.sin(lon), np.cos(lon), zero]),
    )


def why_mixed(report: Report, kernel: Kernel, inputs: np.ndarray, scenes: list[Scene]) -> None:
    """How likely the prior finds each scene's true field, beside the scene whose heaviest solution is "
    "mixed."""
    L = np.linalg.cholesky(kernel(inputs, inputs) + 0.02 * np.eye(len(inputs)))
    fields = np.column_stack([scene.winds.ravel() for scene in scenes])
    misfit = np.sum(np.linalg.solve(L, fields) ** 2, axis=0) / len(inputs)  # 1 for a draw of the prior
    worst, spread = int(np.argmax(misfit)), float(np.median(misfit))
    claim = "online solutions that are neither"
    mixed = next((one.found for one in report.claims if one.text.startswith(claim)), "")
    report.why(
        claim,
        "the prior knows no fronts, and the true field of that scene has one",
        f"wᵀK⁻¹w a component is {misfit[worst]:.1f} for the true field of granule {scenes[worst].granule}, "
        f"{spread:.1f} in the median of the scenes: {0.5 * (misfit[worst] - spread) * len(inputs):.0f} "
        f"nats less",
        f"[{scenes[worst].granule}]" in mixed and misfit[worst] > 2.0 * spread,
    )
