"""The table of the unifying view: a method is a row of data, not a class. [003 Table 1]

With whitened features Φ, Q = ΦᵀΦ and R = K - Q, every row is the linear model y = Φᵀw + e, w ~ N(0, I). A row
says with which power a each likelihood becomes a site (0 variational, 1 expectation propagation), what of R
the sites see, and what a query sees. Under Gaussian noise Σ the site is known in advance: e ~ N(0, D) with D
= Σ + aR, and `evidence_correction` is taken off the log evidence; along neighbours D⁻¹ = TᵀT with a sparse T
(engine/neighbours.py).
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from ..errors import ParameterError, UnknownNameError
from ..numerics.arrays import Array, namespace

Conditional = Literal["exact", "deterministic", "independent"]
Keeps = Literal["nothing", "diagonal", "blocks", "neighbours"]
Test = Literal["exact", "deterministic", "independent", "own block", "neighbours"]


@dataclass(frozen=True)
class Approximation:
    """One row of the unifying view: the power of its sites, and what it keeps of R = K - Q."""

    name: str
    power: float  # a: 0 variational, 1 expectation propagation
    keeps: Keeps  # of R, in training
    test: Test  # what a query sees of R
    # where R is kept along neighbours: their number, or the earlier rows themselves (n, q), -1 for none
    neighbours: int | np.ndarray = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if not 0.0 <= self.power <= 1.0:
            raise ParameterError(f"the power of {self.name!r} must lie in [0, 1], but is {self.power:g}")
        if self.keeps in ("blocks", "neighbours") and self.power != 1.0:
            kept = "blocks of R" if self.keeps == "blocks" else "R along neighbours"
            raise ParameterError(f"{self.name!r} keeps {kept}, which needs power 1, not {self.power:g}")

    @property
    def share(self) -> float:
        """The share of R that counts as noise in training: D = Σ + share · R."""
        return 0.0 if self.keeps == "nothing" else self.power

    @property
    def bound(self) -> bool:
        """Whether the evidence is a lower bound: sites see R's diagonal with power 0."""
        return self.power == 0.0 and self.keeps == "diagonal"

    @property
    def blocks(self) -> bool:
        """Whether blocks of R are kept, so that each row needs a block label."""
        return self.keeps == "blocks"

    @property
    def own_block(self) -> bool:
        """Whether a query sees its own block exactly."""
        return self.test == "own block"

    @property
    def needs_data(self) -> bool:
        """Whether prediction needs the data, so that conditioning makes a predictor, not a Posterior."""
        return self.test in ("own block", "neighbours")

    @property
    def n_neighbours(self) -> int:
        """The largest number of earlier rows that a row is conditioned on."""
        return int(self.neighbours if np.ndim(self.neighbours) == 0 else np.shape(self.neighbours)[1])

    @property
    def conditional(self) -> Conditional:
        """The test conditional of the Posterior that this row makes; a predictor's is exact."""
        return "exact" if self.test == "own block" or self.test == "neighbours" else self.test


SoR = Approximation("sor", 1.0, "nothing", "deterministic")  # [003 §4]
DTC = Approximation("dtc", 1.0, "nothing", "exact")  # [003 §5]
VFE = Approximation("vfe", 0.0, "diagonal", "exact")
FITC = Approximation("fitc", 1.0, "diagonal", "exact")  # [003 §6], [001 eq. 9]
FIC = Approximation("fic", 1.0, "diagonal", "independent")  # [003 Remark 7]
PITC = Approximation("pitc", 1.0, "blocks", "exact")  # [003 §7]
PIC = Approximation("pic", 1.0, "blocks", "own block")
PEP = Approximation("pep", 0.5, "diagonal", "exact")
NEIGHBOURS = Approximation("neighbours", 1.0, "neighbours", "neighbours", 20)

TABLE = {row.name: row for row in (SoR, DTC, VFE, FITC, FIC, PITC, PIC, PEP, NEIGHBOURS)}


def row(name: str, power: float | None = None, neighbours: int | np.ndarray | None = None) -> Approximation:
    """Return the row called `name`, with this `power` (for "pep") or `neighbours` (for "neighbours")."""
    if name not in TABLE:
        raise UnknownNameError(f"there is no approximation {name!r}; choose one of {', '.join(TABLE)}")
    chosen = TABLE[name]
    if neighbours is not None:
        if chosen.keeps != "neighbours":
            raise ParameterError(f"neighbours= is only for 'neighbours', not for {name!r}")
        chosen = replace(chosen, neighbours=neighbours)
    if power is not None:
        if name != "pep":
            raise ParameterError(f"power is only for 'pep', not for {name!r}")
        power = float(power)
        if not 0.0 < power <= 1.0:
            raise ParameterError(f"power must lie in (0, 1], but is {power:g}; towards 0 use 'vfe'")
        chosen = replace(chosen, power=power)
    return chosen


def evidence_correction(power: float, R: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Return (1-a)/(2a) log(1 + aR/σ²) of each row, and its derivatives in R and σ².

    Sites of power a take it off the log evidence under Gaussian noise: ½ R/σ² in the limit a = 0 of VFE,
    nothing for a = 1.
    """
    D = noise + power * R
    half = 0.5 * (1.0 - power)
    value = half * R / noise if power == 0.0 else half / power * namespace(R).log1p(power * R / noise)
    return value, half / D, -half * R / (D * noise)


@dataclass(frozen=True, eq=False)
class Sites:
    """Gaussian factors exp(ν g - ½ τ g²) in place of the likelihood, one a row (for each copy, with weights).

    Here g is the part of f(x) above its prior mean that the basis sees, φᵀw = pᵀu, or with share = 1 all of
    it. [004 eqs 4.17, 4.33]
    """

    tau: Array  # (n,), precisions; they may be negative where log p(y|f) is not concave
    nu: Array  # (n,), shifts
    P: np.ndarray | None = None  # (n, m), or None where the rows of P are those of Kfu Kuu⁻¹
    share: float = 0.0  # of R that counts as noise of the site: 0 or 1
    n_sweeps: int = 0
    converged: bool = False
    changes: tuple[int, ...] = ()  # of the basis, in each sweep
    projected: bool = False  # whether the likelihood is taken at g alone, without R

    @property
    def a(self) -> Array:
        """The pseudo-targets ν/τ of the sites, whose noise is 1/τ. (n,) [004 eq. 4.18]"""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.nu / self.tau
