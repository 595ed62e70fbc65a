"""Continuous ranked probability scores (CRPS), ∫ (F(x) - 1{y ≤ x})² dx, of cumulative probabilities F."""

from collections.abc import Callable

import numpy as np

from ..metrics import crps_losses

SCORE_PANELS, PANEL_NODES = 10, np.polynomial.legendre.leggauss(8)
LONGEST_TAIL = 24  # asinh of the farthest place that is tried, in units of `scale`
LEFT_OUT_TAIL = 1e-10  # share of the largest integrand, below which the tails are left out
ONE_BY_ONE, BLOCK_SHARE = 512, 0.005  # counts added one by one; above, blocks are this share of their counts
FAR_QUANTILE = 1.0 - 1e-9  # up to which counts are added
OfPlaces = Callable[[np.ndarray], np.ndarray]  # a function of places x, or of counts


def crps_by_quadrature(
    below: OfPlaces, slope: OfPlaces, at: np.ndarray, centre: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Return the scores of smooth distributions of g(x) at g(at), with g increasing at this `slope`. (n,)

    below(x) is the probability F of g(x) or less, for x (n, k). With x = centre + scale sinh t the tails of
    any power take few panels, which end where F² or (1 - F)² is negligible; `at` and the centre, where a
    density may have a kink, are edges.
    """

    def place(t: np.ndarray) -> np.ndarray:
        return centre[:, None] + scale[:, None] * np.sinh(t)

    grid = np.broadcast_to(np.arange(LONGEST_TAIL + 1.0), (len(at), LONGEST_TAIL + 1))
    left, right = place(-grid), place(grid)
    counts = [below(left) ** 2 * slope(left), (1.0 - below(right)) ** 2 * slope(right)]  # (n, t) each
    counts = [part * np.cosh(grid) for part in counts]
    most = np.maximum(counts[0].max(axis=1), counts[1].max(axis=1))[:, None]
    inward = [(part > LEFT_OUT_TAIL * most)[:, ::-1] for part in counts]
    low, high = (np.sum(np.cumsum(part, axis=1) > 0, axis=1) for part in inward)
    own = np.arcsinh((at - centre) / scale)
    ends = np.sort(np.stack([np.minimum(-low, own), np.zeros(len(at)), own, np.maximum(high, own)]), axis=0)
    total = np.zeros(len(at))
    for start, stop in zip(ends[:-1], ends[1:]):
        width = (stop - start)[:, None] / SCORE_PANELS
        edges = start[:, None, None] + width[:, :, None] * np.arange(SCORE_PANELS)[:, None]  # (n, panels, 1)
        t = (edges + 0.5 * width[:, :, None] * (1.0 + PANEL_NODES[0])).reshape(len(at), -1)
        weight = 0.5 * width * np.tile(PANEL_NODES[1], SCORE_PANELS) * scale[:, None] * np.cosh(t)
        x = place(t)
        F = below(x)
        gap = np.where(t < own[:, None], F, 1.0 - F)
        total += np.sum(weight * slope(x) * gap**2, axis=1)
    return total


def crps_of_counts(below: OfPlaces, y: np.ndarray, most: np.ndarray | float) -> np.ndarray:
    """Return the scores Σ_k (F(k) - 1{y ≤ k})² of counts y (n,). `below` gives F (n, k) at counts (k,), about
    1 above `most`. Large counts are added in blocks with F at their middle. (n,)
    """
    last = float(max(np.max(y, initial=0.0), np.max(most, initial=0.0)))
    edges = list(range(int(min(last, ONE_BY_ONE)) + 2))
    while edges[-1] <= last:
        edges.append(edges[-1] + 2 * int(BLOCK_SHARE * edges[-1] / 2) + 1)  # odd, with a count in the middle
    starts, stops = np.array(edges[:-1], dtype=float), np.array(edges[1:], dtype=float)
    F = below(0.5 * (starts + stops - 1.0))  # (n, k)
    before = np.clip(y[:, None] - starts, 0.0, stops - starts)
    return np.sum(before * F**2 + (stops - starts - before) * (1.0 - F) ** 2, axis=1)


def crps_of_gaussians(error: np.ndarray, variances: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the scores of mixtures of Gaussians about one centre; variances (n, k). [Grimit et al. 2006]"""
    pairs = np.sqrt(variances[:, :, None] + variances[:, None, :])
    own = np.sqrt(variances / np.pi)
    spread = np.einsum("i,nij,j->n", weights, pairs, weights) / np.sqrt(2.0 * np.pi)
    return (crps_losses(error[:, None], variances) + own) @ weights - spread
