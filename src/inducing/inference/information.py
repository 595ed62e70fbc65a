"""Information gain: how much reading a row would teach a process. [004 §3.8.1]"""

import numpy as np

from ..errors import ParameterError, ShapeError
from ..model.likelihoods import Binary, Gaussian, Likelihood
from ..model.posterior import Posterior
from ..model.problem import as_inputs
from ..numerics.arrays import Array, to_numpy


def information_gain(post: Posterior, likelihood: Likelihood, X: Array, y: Array | None = None) -> np.ndarray:
    """Return KL(process after the row || process now) for each row on its own. (n,)

        ½ [(q² + r)σ² - log(1 + rσ²)]   [004 eq. 3.16]

    Without y, return its expectation over the y that the process predicts. As E(q² + r) = 0, that is
    -½ E log(1 + rσ²), so the next row to label can be chosen before any label is known. [004 §3.8.1]
    """
    X = as_inputs(X)
    mean, variance = (to_numpy(part) for part in post.predict(X))
    variance = np.maximum(variance, 1e-300)
    if y is not None:
        y = checked_targets(likelihood, y, X)
        if y.shape != mean.shape:
            raise ShapeError(f"y has shape {y.shape}, but the process predicts {mean.shape}")
        wide = variance if mean.ndim == 1 else variance[:, None]
        _, q, r = likelihood.tilted(y, mean, wide)
        gain = 0.5 * ((q * q + r) * wide - np.log1p(r * wide))
        return gain if gain.ndim == 1 else np.sum(gain, axis=1)
    if isinstance(likelihood, Gaussian):
        return 0.5 * (1 if mean.ndim == 1 else mean.shape[1]) * np.log1p(variance / likelihood.variance)
    if not isinstance(likelihood, Binary):
        known = "known for Gaussian and binary likelihoods"
        raise ParameterError(f"the gain of a row without its y is {known}, not {likelihood}")
    gain = np.zeros(len(X))
    for label in (-1.0, 1.0):
        log_probability, _, r = likelihood.tilted(label, mean, variance)
        gain -= 0.5 * np.exp(log_probability) * np.log1p(r * variance)
    return gain


def most_informative(post: Posterior, likelihood: Likelihood, X: Array, y: Array | None = None) -> int:
    """Return the number of the row with the largest information gain, to be read or labelled next."""
    return int(np.argmax(information_gain(post, likelihood, X, y)))


def checked_targets(likelihood: Likelihood, y: Array, X: np.ndarray) -> np.ndarray:
    """Return y as the likelihood takes it. Raise if it has not one row of targets for each row of X."""
    y = likelihood.check(to_numpy(y), processes=True)
    if y.ndim not in (1, 2) or len(y) != len(X) or y.shape[1:] == (0,):
        raise ShapeError(f"y has shape {y.shape}, but X has {len(X)} rows; give one target row per input row")
    return np.ascontiguousarray(y)
