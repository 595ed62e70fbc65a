"""The kernel that an estimator starts from: given in the user's units, by name, or chosen from several."""

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import InducingWarning, UnknownNameError
from ..learning.choice import best_kernel
from ..learning.recipes import Task
from ..learning.settings import require_priors
from ..model import kernels
from ..model.bases import Points
from ..model.kernels.base import Kernel
from ..model.kernels.stationary import Stationary
from ..sources.moments import center_and_scale
from .columns import Kinds
from .preparation import ONLY_NUMBERS, Data, Scaling

NEAR_ROWS, UNRELATED = 20_000, 1e-6  # rows that are compared; correlations below which they are unrelated


def start_kernel(
    kernel: Kernel | str | None,
    X: np.ndarray,
    weights: np.ndarray,
    variance: float,
    ard: bool = True,
    kinds: Kinds = ONLY_NUMBERS,
    rank: int | None = None,
    mixed: bool = True,
) -> Kernel:
    """Return the kernel given, or of this name with lengthscales of √d deviations, one per input if `ard`."""
    kernel = "rbf" if kernel is None else kernel
    if isinstance(kernel, Kernel):
        return kinds.kernel(kernel, X.shape[1], rank, mixed)
    kind = kernels.BY_NAME.get(kernel.lower()) if isinstance(kernel, str) else None
    if kind is None or not issubclass(kind, Stationary):
        known = [name for name, k in kernels.BY_NAME.items() if issubclass(k, Stationary)]
        raise UnknownNameError(f"kernel must be a Kernel or one of {', '.join(known)}, not {kernel!r}")
    width, X = X.shape[1], X[:, kinds.numbers(X.shape[1])]
    scales: Any = center_and_scale(X, weights)[1]  # (d,)
    varying = np.ptp(X, axis=0) > 0
    if not ard:
        scales = float(np.sqrt(np.mean(scales[varying] ** 2))) if np.any(varying) else 1.0
    root = float(np.sqrt(max(1, int(np.count_nonzero(varying)))))
    base = kind(lengthscale=root * scales, variance=variance) if np.size(scales) else kind()  # type: ignore[call-arg]
    return kinds.kernel(base, width, rank, mixed)


def own_kernel(
    model: Any, data: Data, noise: Any, variance: float, scaling: Scaling, deadline: float = math.inf
) -> Kernel:
    """Return the kernel that a regressor starts from; for "auto" that which best predicts left-out rows, as
    far as it is learned until the deadline.
    """
    if model.kernel == "auto":
        few = Task(kernels.RBF(), Points(data.X[:1]), "fitc", noise, data.X, data.Y)
        few = few.set(deadline=deadline, max_iterations=model.max_iter)
        return best_kernel(few, start_kernels(data, variance, model.kinds_, model.rank, model.ard))
    rough = model.approximation == "neighbours" and model.basis != "multiscale" and model.kernel is None
    rough = rough and model.kinds_.way != "variances"
    given = given_kernel(model.kernel, scaling.x_scale, scaling.x_mean, model.kinds_)
    given = "matern32" if rough else given
    kernel = start_kernel(given, data.X, data.weights, variance, model.ard, model.kinds_, model.rank)
    return warned(kernel, data.X) if isinstance(model.kernel, Kernel) else kernel


def given_kernel(kernel: Any, x_scale: np.ndarray, x_mean: np.ndarray, kinds: Kinds = ONLY_NUMBERS) -> Any:
    """Convert a kernel from the user's units to the model's; return a name or None unchanged."""
    if not isinstance(kernel, Kernel):
        return kernel
    return kernels.in_units(kinds.of_numbers(kernel, len(x_scale)), x_scale, x_mean)


def warned(kernel: Kernel, X: np.ndarray) -> Kernel:
    """Return the kernel; warn if all rows are unrelated under it, so that nothing can be learned."""
    rows, few = X[:NEAR_ROWS], np.arange(0, min(len(X), NEAR_ROWS), max(1, min(len(X), NEAR_ROWS) // 64))
    K = np.abs(kernel(rows[few], rows))
    K[np.arange(len(few)), few] = 0.0
    lengths = kernels.units_of(kernel, np.ones(X.shape[1]))
    if len(rows) > 1 and lengths and K.max() < UNRELATED * np.max(kernel.diag(rows[few])):
        shortest = min(float(np.min(kernel.parameters[name])) for name in lengths)
        warnings.warn(
            f"no two rows are related under the kernel given: its lengthscales count the units of X, and the "
            f"shortest is {shortest:.2g} standard deviations; give longer ones, or the kernel by its name",
            InducingWarning,
            stacklevel=4,
        )
    return kernel


def given_priors(priors: Any, kernel: Any, x_scale: np.ndarray) -> Any:
    """Convert priors on lengthscales and periods of a kernel from the user's units to the model's; a kernel
    by name has a lengthscale for each input. The other priors are unchanged.
    """
    require_priors(priors)
    kernel = kernel if isinstance(kernel, Kernel) else kernels.RBF(np.ones(len(x_scale)))
    units = {f"kernel.{name}": unit for name, unit in kernels.units_of(kernel, x_scale).items()}
    return {
        name: replace(prior, median=np.asarray(prior.median) / units[name]) if name in units else prior
        for name, prior in (priors or {}).items()
    } or priors


def start_kernels(
    data: Data, variance: float, kinds: Kinds = ONLY_NUMBERS, rank: int | None = None, ard: bool = True
) -> dict[str, Kernel]:
    """Return the kernels that "auto" chooses from, by name, in the order in which they are tried."""
    names = "matern32 matern52 rbf rationalquadratic matern12".split()
    names = ["rbf"] if kinds.way == "variances" else ["matern32", "rbf"] if kinds.codes else names
    levels = kinds.codes.get(kinds.output, 1) if kinds.output is not None else 1
    tried: list[Any] = sorted({1, min(3, levels)}) if levels > 1 and rank is None else []
    ranks = {f", rank {r}": r for r in tried} or {"": rank}
    sums = {"": False, ", mixed": True} if len(kinds.codes) > (kinds.output is not None) else {"": False}
    return {
        name + of_rank + form: start_kernel(name, data.X, data.weights, variance, ard, kinds, r, mixed)
        for name in names
        for of_rank, r in ranks.items()
        for form, mixed in sums.items()
    }
