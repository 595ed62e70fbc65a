"""Predictions and evidence of random problems against 40 digits, with the error that rounding K permits.

Inputs have magnitudes, offsets, repeats and far rows; the tolerance is what the condition of the problem
makes of one rounding of the kernel matrix, not a number chosen by hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import inducing as ig
import oracle
from inducing.engine.evidence import SQUARED
from inducing.errors import InducingError
from inducing.numerics.linalg import EPSILON

CASES = st.fixed_dictionaries(
    {
        "row": st.sampled_from(["exact", "dtc", "vfe", "fitc"]),
        "n": st.integers(1, 9),
        "m": st.integers(1, 4),
        "d": st.integers(1, 3),
        "seed": st.integers(0, 2**32 - 1),
        "lengthscale": st.floats(-3.0, 3.0),  # logarithms to base 10, as the next three
        "variance": st.floats(-6.0, 6.0),
        "noise": st.floats(-18.0, 3.0),
        "targets": st.floats(-6.0, 6.0),
        "offset": st.sampled_from([0.0, 0.0, 1.0, 1e3, 2.0**20, -(2.0**30)]),
        "far": st.sampled_from([None, None, 1e6, 1e14, 1e36]),
        "repeat": st.booleans(),
        "elsewhere": st.booleans(),  # where the basis is
    }
)
SMALL: dict[str, Any] = dict.fromkeys(("lengthscale", "variance", "targets", "offset"), 0.0)
SMALL |= dict(m=1, d=1, far=None, repeat=False)
FOUND: list[Any] = [
    # rounding in what is left of k(x, x); targets of far rows that spilled over
    SMALL | dict(row="exact", n=7, seed=415241767, noise=-16.0),
    SMALL | dict(row="dtc", n=3, m=3, seed=0, noise=-15.859375, far=1e6, repeat=True, elsewhere=True),
    # one far row moved the mean that was subtracted from all rows
    dict(
        row="exact",
        n=9,
        m=4,
        d=2,
        seed=1,
        lengthscale=0.0,
        variance=0.0,
        noise=-3.0,
        targets=0.0,
        offset=0.0,
        far=1e14,
        repeat=False,
    ),
    dict(
        row="fitc",
        n=9,
        m=4,
        d=1,
        seed=2,
        lengthscale=0.3,
        variance=1.0,
        noise=-2.0,
        targets=0.0,
        offset=2.0**30,
        far=1e36,
        repeat=True,
    ),
]


def check(case: dict[str, Any]) -> None:
    rng = np.random.default_rng(case["seed"])
    n, d = case["n"], case["d"]
    X = np.round(rng.normal(size=(n, d)) * 64) / 64 + case["offset"]  # the offset leaves them exact
    Xs = np.round(rng.normal(size=(3, d)) * 64) / 64 + case["offset"]
    if case["far"] is not None:
        X[-1] = case["far"]
    if case["repeat"] and n > 1:
        X[0] = X[-1]
    y = rng.normal(size=n) * 10.0 ** case["targets"]
    Z = X[rng.permutation(n)[: case["m"]]]
    if case.get("elsewhere"):
        Z = np.round(rng.normal(size=Z.shape) * 64) / 64 + case["offset"]
    Z = np.unique(Z, axis=0)
    lengthscale, variance = 10.0 ** case["lengthscale"], 10.0 ** case["variance"]
    noise, jitter = variance * 10.0 ** case["noise"], 1e-8
    kernel, basis = ig.kernels.RBF(lengthscale, variance), ig.bases.Points(Z)
    arguments = case["row"], X, Z, Xs, y, noise
    options = dict(
        lengthscale=lengthscale, variance=variance, jitter=0.0 if case["row"] == "exact" else jitter
    )
    try:
        post = ig.condition(
            kernel, None if case["row"] == "exact" else basis, case["row"], noise, X, y, jitter=jitter
        )
    except InducingError:  # a sentence, no number
        return
    mean, var, value = oracle.high_precision(*arguments, **options)
    permitted = np.array(oracle.permitted_error(*arguments, draws=3, **options))
    sizes = np.array([np.max(np.abs(y)), variance, abs(float(value)) + n])
    # beside a basis elsewhere, squares of rows may take so much of what they do not tell of, no more
    squares = EPSILON * min(n * 10.0 ** -case["noise"], SQUARED) if case.get("elsewhere") else 0.0
    allowed = 100 * n * permitted + (1e-11 + 100 * squares) * sizes
    m1, v1 = post.predict(Xs)
    # what is left of k(x, x) is computed, not clipped: rounding may show where noise is next to none
    least = 0.0 if case["noise"] >= -8.0 else -1e-12 * variance
    assert np.all(np.isfinite(m1)) and np.all(np.isfinite(v1)) and np.all(v1 >= least), (m1, v1)
    got = np.array(
        [np.max(np.abs(m1 - mean)), np.max(np.abs(v1 - var)), abs(post.log_evidence - float(value))]
    )
    assert np.all(got <= allowed), f"errors {got}, allowed {allowed}"
