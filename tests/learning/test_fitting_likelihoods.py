"""`fit` with a likelihood in the place of noise: the objective's gradient, learned parameters, sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing.inference.regression import approximation_of, as_problem
from inducing.learning.objective import Objective
from inducing.learning.packing import Packing, Parameters, Summary
from inducing.learning.settings import Settings
from inducing.model.likelihoods import Contaminated, Logistic, Poisson, Probit, StudentT

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (60, 2))
F = 1.5 * np.sin(2 * X[:, 0])
LABELS = np.where(F + 0.3 * rng.standard_normal(60) > 0, 1.0, -1.0)
CASES = {
    "probit": (Probit(), LABELS),
    "logistic": (Logistic(), LABELS),
    "poisson": (Poisson(), rng.poisson(np.exp(F)).astype(float)),
    "student": (StudentT(4.0, 0.3), F + 0.2 * rng.standard_t(3, 60)),
}


@pytest.mark.parametrize("row", ["vfe", "fitc"])
@pytest.mark.parametrize("case", CASES)
def test_gradient_of_the_objective(case: str, row: str) -> None:
    likelihood, y = CASES[case]
    P = as_problem(
        ig.kernels.RBF([0.8, 2.0]), ig.bases.Points(X[:6]), approximation_of(row), likelihood, X, y
    )
    objective = Objective(P, Settings())
    value, slope = objective.value_and_gradient(objective.start)
    direction = np.random.default_rng(1).standard_normal(len(slope))
    ends = [objective.value_and_gradient(objective.start + s * 1e-4 * direction)[0] for s in (1, -1)]
    assert_allclose(slope @ direction, (ends[0] - ends[1]) / 2e-4, rtol=2e-4)


def test_the_inputs_that_matter_are_found_and_the_scale_is_learned() -> None:
    likelihood, y = StudentT(4.0, 2.0), CASES["student"][1]
    result = ig.fit(
        ig.kernels.RBF([1.0, 1.0]), ig.bases.Points(X[:10]), "vfe", likelihood, X, y, max_iterations=60
    )
    assert isinstance(result.noise, StudentT)
    assert 0.05 < result.noise.scale < 0.5
    assert result.kernel.lengthscale[1] > 2 * result.kernel.lengthscale[0]
    assert result.posterior.sites.converged
    start = ig.log_evidence(ig.kernels.RBF([1.0, 1.0]), ig.bases.Points(X[:10]), "vfe", likelihood, X, y)
    assert result.value > start + 10


def test_probit_s_noise_is_held() -> None:
    result = ig.fit(
        ig.kernels.RBF([1.0, 1.0]), ig.bases.Points(X[:10]), "fitc", Probit(), X, LABELS, max_iterations=20
    )
    assert result.noise == Probit()
    assert (
        ig.metrics.accuracy(LABELS, np.sign(result.posterior.predict(X)[0])) > 0.9
        if hasattr(ig.metrics, "accuracy")
        else np.mean(np.sign(result.posterior.predict(X)[0]) == LABELS) > 0.9
    )


def test_a_source_is_learned_from_as_arrays_are() -> None:
    call: dict[str, Any] = dict(max_iterations=8)
    start = ig.kernels.RBF([1.0, 1.0]), ig.bases.Points(X[:8]), "vfe", Probit()
    here = ig.fit(*start, X, LABELS, **call)
    there = ig.fit(*start, ig.as_source(X, LABELS, chunk_rows=17), **call)
    assert there.value == pytest.approx(here.value, abs=0.1)  # steps amplify what sites leave open


def test_held_out_rows_judge_by_the_likelihood() -> None:
    result = ig.fit(
        ig.kernels.RBF([1.0, 1.0]),
        ig.bases.Points(X[:8]),
        "vfe",
        Probit(),
        X[:45],
        LABELS[:45],
        held_out=(X[45:], LABELS[45:]),
        max_iterations=15,
    )
    mean, variance = result.posterior.predict(X[45:])
    assert result.score == pytest.approx(np.mean(Probit().log_average(LABELS[45:], mean, variance)), abs=1e-3)


@pytest.mark.parametrize(("low", "high"), [(1.0, np.inf), (-np.inf, 2.0), (-1.0, 3.0), (-np.inf, np.inf)])
def test_bounds_of_parameters_may_be_infinite_on_either_side(low: float, high: float) -> None:
    """Every variable is a legal parameter, the way back is the way there, and the slope is its derivative."""

    class Bounded(Contaminated):
        bounds = {"share": (0.0, 1.0), "inflation": (low, high)}
        held = ()

        def __post_init__(self) -> None:
            pass

    parameters = Parameters(
        ig.kernels.RBF([1.0, 1.0]), ig.bases.Points(X[:3]), Bounded(0.1, 0.1, 1.5), ig.means.Zero()
    )
    spread = np.ones(2)
    packing = Packing(parameters, Summary(60, spread, -spread, spread, 1.0))
    where, transform = packing.slices["likelihood.inflation"], packing.transforms["likelihood.inflation"]
    assert packing.values(packing.start)["likelihood.inflation"] == pytest.approx(1.5)
    for variable in np.linspace(-8.0, 8.0, 9):
        x = packing.start.copy()
        x[where] = variable
        value = packing.values(x)["likelihood.inflation"].item()
        assert low < value < high
        assert transform.encode(value) == pytest.approx(variable, abs=1e-9)
        slope = (transform.decode(variable + 1e-5) - transform.decode(variable - 1e-5)) / 2e-5
        assert transform.slope(value) == pytest.approx(slope, rel=1e-6)


def test_a_parameter_above_one_is_learned_and_stays_there() -> None:
    likelihood = Contaminated(0.05, 0.1, 4.0)

    class Free(Contaminated):
        held = ()

    result = ig.fit(
        ig.kernels.RBF([1.0, 1.0]),
        ig.bases.Points(X[:8]),
        "vfe",
        Free(likelihood.variance, likelihood.share, likelihood.inflation),
        X,
        F + 0.1 * np.random.default_rng(2).standard_normal(60),  # no outliers: nothing to inflate
        max_iterations=40,
    )
    assert result.noise.inflation > 1.0 and np.isfinite(result.value)
