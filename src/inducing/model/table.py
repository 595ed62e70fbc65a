"""The table of the unifying view: a method is a row, not a class. [003 Table 1]

With whitened features Φ, Q = ΦᵀΦ and R = K - Q, every row is the linear model y = Φᵀw + e, w ~ N(0, I), e ~
N(0, D), D = Λ + Σ. Rows differ in what of R the training conditional keeps (Λ), in what the test conditional
keeps, and in a penalty on the evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from ..errors import ParameterError, UnknownNameError
from ..numerics.arrays import Array, namespace

Conditional = Literal["exact", "deterministic", "independent"]
Penalty = Callable[[Array, Array, float], tuple[Array, Array, Array]]


def no_penalty(R: Array, noise: Array, share: float) -> tuple[Array, Array, Array]:
    zero = 0.0 * R
    return zero, zero, zero


def trace_penalty(R: Array, noise: Array, share: float) -> tuple[Array, Array, Array]:
    """½ R/σ² of each row, and its derivatives in R and σ²: what makes VFE a lower bound."""
    half = 0.5 / noise
    return half * R, half, -half * R / noise


def power_penalty(R: Array, noise: Array, share: float) -> tuple[Array, Array, Array]:
    """(1-a)/(2a) log(1 + a R/σ²) of each row, and its derivatives in R and σ²; a → 0 is VFE's, a = 1 none."""
    xp = namespace(R)
    half = 0.5 * (1.0 - share)
    D = share * R + noise
    return half / share * xp.log1p(share * R / noise), half / D, -half * R / (D * noise)


@dataclass(frozen=True)
class Approximation:
    """One row: what the training and the test conditional keep of R = K - Q."""

    name: str
    share: float  # of R's diagonal (or blocks) kept in training: Λ = share · diag R
    test: Conditional
    penalty: Penalty = no_penalty
    blocks: bool = False  # keep whole diagonal blocks of R, not only its diagonal
    own_block: bool = False  # a query sees its own block exactly: needs the data at prediction time


SoR = Approximation("sor", 0.0, "deterministic")  # [003 §4]
DTC = Approximation("dtc", 0.0, "exact")  # [003 §5]
VFE = Approximation("vfe", 0.0, "exact", trace_penalty)
FITC = Approximation("fitc", 1.0, "exact")  # [003 §6], [001 eq. 9]
FIC = Approximation("fic", 1.0, "independent")  # [003 Remark 7]
PITC = Approximation("pitc", 1.0, "exact", blocks=True)  # [003 §7]
PIC = Approximation("pic", 1.0, "exact", blocks=True, own_block=True)
PEP = Approximation("pep", 0.5, "exact", power_penalty)

TABLE = {row.name: row for row in (SoR, DTC, VFE, FITC, FIC, PITC, PIC, PEP)}


def row(name: str, power: float | None = None) -> Approximation:
    """The row called `name`; `power` is PEP's share, between VFE (towards 0) and FITC (1)."""
    if name not in TABLE:
        raise UnknownNameError(f"there is no approximation {name!r}; choose one of {', '.join(TABLE)}")
    if name != "pep":
        if power is not None:
            raise ParameterError(f"power is only for 'pep', not for {name!r}")
        return TABLE[name]
    share = PEP.share if power is None else float(power)
    if not 0.0 < share <= 1.0:
        raise ParameterError(f"power must lie in (0, 1], but is {share:g}; towards 0 use 'vfe'")
    return replace(PEP, share=share)
