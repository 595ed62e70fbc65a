"""Several processes of one y: bounds and gradients of learned noise and of softmax."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing.engine.several import factorise_jointly, joint_gradient
from inducing.inference.regression import as_problem
from inducing.model.likelihoods import LearnedNoise, Softmax
from inducing.model.problem import Problem, make_problem
from inducing.model.table import VFE

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (40, 1))
Y = np.sin(2 * X[:, 0]) + np.where(X[:, 0] > 0, 0.5, 0.05) * rng.standard_normal(40)
Z = np.linspace(-2, 2, 6)[:, None]
KF, KG = ig.kernels.RBF(0.8, 1.2), ig.kernels.RBF(1.5, 2.0)


def problems(kernels: Any, likelihood: Any, y: np.ndarray) -> list[Problem]:
    return [make_problem(k, ig.bases.Points(Z), VFE, likelihood, X, y, jitter=1e-6) for k in kernels]


def test_noise_that_is_known_to_be_one_number_is_vfe() -> None:
    """With a g that does not vary about its mean, learned noise is Gaussian noise of variance exp(mean)."""
    level = np.log(0.09)
    f, g = problems([KF, ig.kernels.RBF(1.0, 1e-10)], LearnedNoise(), Y)
    F = factorise_jointly([f, replace(g, mean=ig.means.Constant(level))], tolerance=1e-9)
    expected = ig.condition(KF, ig.bases.Points(Z), "vfe", 0.09, X, Y, jitter=1e-6)
    assert F.converged and F.value == pytest.approx(expected.log_evidence, abs=1e-5)
    assert_allclose(F.each[0].w, expected.w, atol=1e-6)


@pytest.mark.parametrize("case", ["noise", "softmax"])
def test_gradient_by_central_differences(case: str) -> None:
    if case == "noise":
        kernels, likelihood, y = [KF, KG], LearnedNoise(), Y
    else:
        likelihood, y = Softmax(3), np.digitize(Y, [-0.5, 0.5]).astype(float)
        kernels = [KF, KG, ig.kernels.RBF(1.1, 0.7)]

    def value(kernels: Any) -> float:
        return factorise_jointly(problems(kernels, likelihood, y), tolerance=1e-10).value

    given = problems(kernels, likelihood, y)
    gradients = joint_gradient(given, factorise_jointly(given, tolerance=1e-10))
    for j, kernel in enumerate(kernels):
        for name, at in kernel.parameters.items():
            ends = [
                value([*kernels[:j], kernel.with_parameters({name: at + h}), *kernels[j + 1 :]])
                for h in (1e-4, -1e-4)
            ]
            slope = (ends[0] - ends[1]) / 2e-4
            assert_allclose(
                gradients[j][f"kernel.{name}"], slope, rtol=2e-4, atol=2e-5, err_msg=f"{j} {name}"
            )


def test_the_bound_is_not_below_that_of_worse_processes() -> None:
    """Sweeps raise the bound to where no other start ends higher."""
    given = problems([KF, KG], LearnedNoise(), Y)
    best = factorise_jointly(given, tolerance=1e-9).value
    assert best > factorise_jointly(given, tolerance=1e-9, sweeps=2, escalate=False).value


def test_a_source_gives_the_same_processes() -> None:
    source = ig.as_source(X, Y, chunk_rows=7)
    here = factorise_jointly(problems([KF, KG], LearnedNoise(), Y), tolerance=1e-9)
    parted = [
        as_problem(kernel, ig.bases.Points(Z), VFE, LearnedNoise(), source, None, jitter=1e-6)
        for kernel in (KF, KG)
    ]
    there = factorise_jointly(parted, tolerance=1e-9)
    assert there.converged and there.value == pytest.approx(here.value, rel=1e-9)
    for a, b in zip(here.each, there.each, strict=True):
        assert_allclose(b.w, a.w, atol=1e-6)
