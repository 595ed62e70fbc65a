"""Removal of basis functions, one by one or in groups: its cost, and the order. [004 §§3.3-3.5]"""

from typing import Literal, NamedTuple

import numpy as np

from ..errors import require_one_of
from ..numerics.linalg import gram, identity, inverse_lower

Score = Literal["mean", "kl", "heuristic"]


def check_score(score: str, online: bool = False) -> None:
    """Raise if there is no such score; online learning has no "heuristic"."""
    require_one_of("the removal score", score, ("mean", "kl") if online else ("mean", "kl", "heuristic"))


def removal_scores(
    alpha: np.ndarray, CQ: np.ndarray, Q: np.ndarray, N: np.ndarray | None = None
) -> np.ndarray:
    """Return the cost of removing each of g groups of s basis functions, in KL (half of 004's ε). (g,)

        ½ tr αᵀ(c + q)⁻¹α,   the change of the mean alone                              [004 eqs 3.26, 5.43]
        and with N also ½ outputs [tr q⁻¹n + log|c + q| - log|q|], the whole KL        [004 eq. 3.24]

    alpha (g, s, outputs) are the groups' coefficients, CQ, Q and N (g, s, s) their blocks of C + Q, Q = Kuu⁻¹
    and -(C⁻¹ + Kuu)⁻¹.
    """
    scores = 0.5 * np.sum(alpha * np.linalg.solve(CQ, alpha), axis=(1, 2))
    if N is None:
        return scores
    trace = np.trace(np.linalg.solve(Q, N), axis1=1, axis2=2)
    return scores + 0.5 * alpha.shape[2] * (trace + np.linalg.slogdet(CQ)[1] - np.linalg.slogdet(Q)[1])


class OnlineTerms(NamedTuple):
    """Matrices of a process that online learning keeps between calls, so that the next row costs O(m²)."""

    factors: tuple[np.ndarray, np.ndarray, np.ndarray]  # the L, w and A that `scores` was computed for
    scores: tuple[np.ndarray, ...]  # α (p, m), the diagonals of C + Q and Q, and N for "kl"; may be empty
    age: int  # rows read since `scores` was computed anew


class Removal:
    """The basis functions still kept, with u = Luu v and v ~ N(w, precision⁻¹); dropping one costs O(m²).
    [004 eqs 3.19-3.22, D.2]
    """

    def __init__(
        self, Luu: np.ndarray, w: np.ndarray, precision: np.ndarray, score: Score, group: int = 1
    ) -> None:
        check_score(score)
        Linv = inverse_lower(Luu)
        self.score, self.group, self.kept = score, group, np.arange(len(Luu))
        self.alpha = Linv.T @ w
        self.CQ = Linv.T @ np.linalg.solve(precision, Linv)  # C + Q
        self.Q = gram(Linv)
        self.N = Linv.T @ (precision - identity(Luu)) @ Linv  # -(C⁻¹ + Kuu)⁻¹ = Q(P - Kuu)Q

    def scores(self) -> np.ndarray:
        """Return the cost of removing each group. (groups,)"""
        g, s = len(self.kept) // self.group, self.group

        def blocks(M: np.ndarray) -> np.ndarray:
            return M.reshape(g, s, g, s)[np.arange(g), :, np.arange(g)]  # (g, s, s)

        if self.score == "heuristic":  # the mean's change at the group, |α|/q of one function [004 eq. 3.6]
            change = np.linalg.solve(blocks(self.Q), self.alpha.reshape(g, s, -1))
            return np.sqrt(np.sum(change * change, axis=(1, 2)))
        N = blocks(self.N) if self.score == "kl" else None
        return removal_scores(self.alpha.reshape(g, s, -1), blocks(self.CQ), blocks(self.Q), N)

    def until(self, groups: int) -> np.ndarray:
        """Drop groups of least score, one by one, down to `groups`; return the functions kept. (m,)"""
        while len(self.kept) > groups * self.group:
            i = int(np.argmin(self.scores())) * self.group
            for _ in range(self.group):  # one function after the other: projections compose
                self._drop(i)
        return self.kept

    def _drop(self, i: int) -> None:
        rest = np.arange(len(self.kept)) != i
        square = np.ix_(rest, rest)
        cq, q, n = self.CQ[rest, i], self.Q[rest, i] / self.Q[i, i], self.N[rest, i]
        self.alpha = self.alpha[rest] - np.outer(cq, self.alpha[i]) / self.CQ[i, i]
        self.CQ = self.CQ[square] - np.outer(cq, cq) / self.CQ[i, i]
        self.N = self.N[square] - np.outer(q, n) - np.outer(n, q) + self.N[i, i] * np.outer(q, q)
        self.Q = self.Q[square] - np.outer(q, q) * self.Q[i, i]
        self.kept = self.kept[rest]
