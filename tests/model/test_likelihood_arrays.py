"""Likelihoods on PyTorch arrays, at extremes, with further columns of y, and what they refuse."""

import json
from typing import Any

import numpy as np
import pytest
from likelihood_cases import CASES, IDS, POWERS, Case, rows
from numpy.testing import assert_allclose

from inducing.errors import (
    InducingError,
    LabelError,
    NonFiniteError,
    ParameterError,
    ShapeError,
    UnknownNameError,
)
from inducing.model import likelihoods
from inducing.model.likelihoods import (
    AsymmetricLaplace,
    Beta,
    Binomial,
    CensoredGaussian,
    Contaminated,
    Custom,
    Exponential,
    Gamma,
    Gaussian,
    Laplace,
    LearnedNoise,
    LearnedScaleT,
    Likelihood,
    Logistic,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Probit,
    Softmax,
    Step,
    StudentT,
    Weibull,
)

MEAN = np.concatenate([np.linspace(-3.0, 3.0, 12), [0.5, -6.0]])
VAR = np.concatenate([np.tile([1e-6, 0.4, 2.0, 30.0], 3), [1e4, 0.3]])


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_pytorch_gives_the_same(case: Case) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    y = rows(case.y, len(MEAN))
    foreign = [torch.tensor(v) for v in (y, MEAN, VAR)]
    for power in POWERS:
        got, expected = case.likelihood.tilted(*foreign, power), case.likelihood.tilted(y, MEAN, VAR, power)
        for a, b, unit in zip(got, expected, (1.0, np.sqrt(VAR), VAR), strict=True):
            assert isinstance(a, torch.Tensor) and a.dtype == torch.float64
            assert_allclose(a.numpy() * unit, b * unit, rtol=1e-9, atol=1e-10)
        slopes = case.likelihood.parameter_gradient(*foreign, power)
        for name, part in case.likelihood.parameter_gradient(y, MEAN, VAR, power).items():
            assert_allclose(slopes[name].numpy(), part, rtol=1e-9, atol=1e-10)


def test_pytorch_gives_the_same_for_several_processes_and_functions() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    r = np.random.default_rng(0)
    means, variances = r.normal(size=(9, 3)), r.uniform(0.1, 3.0, (9, 3))
    for likelihood, c, y in (
        (LearnedNoise(), 2, r.normal(size=9)),
        (LearnedScaleT(3.0), 2, r.normal(size=9)),
        (Softmax(3), 3, r.integers(0, 3, 9).astype(float)),
    ):
        part = y, means[:, :c], variances[:, :c]
        got = likelihood.expected(*(torch.tensor(v) for v in part))
        for a, b in zip(got, likelihood.expected(*part), strict=True):
            assert_allclose(a.numpy(), b, rtol=1e-10, atol=1e-12)
    quartic = Custom(lambda y, f: -((y - f) ** 4))
    for power in POWERS:
        got = quartic.tilted(
            torch.tensor(means[:, 0]),
            torch.tensor(means[:, 1]),
            torch.tensor(0.7, dtype=torch.float64),
            power,
        )
        for a, b in zip(got, quartic.tilted(means[:, 0], means[:, 1], 0.7, power), strict=True):
            assert_allclose(a.numpy(), b, rtol=1e-9, atol=1e-10)


# extremes: finite numbers, or an error by name -------------------------------------------------------------

REALS = [0.0, 1e-300, -1e3, 1e10, 1e49]
TIMES = [1e-49, 1e-5, 1.0, 1e8, 1e49]
EXTREMES: list[tuple[Likelihood, list[Any]]] = [
    *((Gaussian(v), REALS) for v in (1e-99, 1.0, 1e99)),
    *((kind(s), REALS) for kind in (Laplace, AsymmetricLaplace) for s in (1e-49, 1.0, 1e49)),
    *((StudentT(df, s), REALS) for df in (0.1, 4.0, 1e9) for s in (1e-30, 1.0, 1e30)),
    *((Contaminated(v, 0.05, 100.0), REALS) for v in (1e-30, 1.0, 1e30)),
    *((CensoredGaussian(v), [[y, s] for y in REALS for s in (-1, 0, 1)]) for v in (1e-30, 1.0, 1e30)),
    *((Probit(v), [-1.0, 1.0]) for v in (1e-30, 1.0, 1e30)),
    (Logistic(), [-1.0, 1.0]),
    (Step(0.1), [-1.0, 1.0]),
    *((Ordinal(t, g, v), [0, 1, 2]) for t, g, v in ((0.0, 1.0, 1.0), (5.0, 1e40, 1e10), (0.0, 1e-40, 1.0))),
    (Poisson(), [[y, e] for y in (0, 1, 1e6, 1e12) for e in (1e-49, 1.0, 1e49)]),
    *(
        (NegativeBinomial(k), [[y, e] for y in (0, 1, 1e12) for e in (1e-49, 1, 1e49)])
        for k in (1e-8, 2.0, 1e9)
    ),
    (Binomial(), [[0, 1], [1, 1], [0, 1e12], [1e12, 1e12], [3, 7], [1e6, 1e12]]),
    (Exponential(), [[y, c] for y in TIMES for c in (0, 1)]),
    *((Weibull(k), [[y, c] for y in TIMES for c in (0, 1)]) for k in (0.01, 2.0, 500.0)),
    *((Gamma(k), [[y, c] for y in TIMES for c in (0, 1)]) for k in (0.5, 50.0, 1e6)),
    *((Beta(k), [1e-49, 1e-5, 0.5, 1.0 - 1e-12]) for k in (1e-4, 3.0, 1e8)),
]
EXTREME_IDS = [f"{type(likelihood).__name__}{i}" for i, (likelihood, _) in enumerate(EXTREMES)]


@pytest.mark.parametrize(("likelihood", "ys"), EXTREMES, ids=EXTREME_IDS)
def test_extremes_are_finite(likelihood: Likelihood, ys: list[Any]) -> None:
    """Means up to 1e49 with variances from 1e-300 to 1e99: finite, and a proper tilted variance."""
    means, variances = [0.0, -3.0, 700.0, -1e6, 1e12, 1e49], [1e-300, 1e-40, 1e-12, 1.0, 1e4, 1e10, 1e99]
    i, mean, var = (v.ravel() for v in np.meshgrid(np.arange(len(ys)), means, variances))
    y = np.array(ys, dtype=float)[i.astype(int)]
    for power in POWERS:
        value, q, r = likelihood.tilted(y, mean, var, power)
        assert np.all(np.isfinite(value)) and np.all(np.isfinite(q)) and np.all(np.isfinite(r))
        assert power == 0.0 or np.all(1.0 + r * var > -1e-6)
        if power == 1.0:
            for part in likelihood.parameter_gradient(y, mean, var, power).values():
                assert np.all(np.isfinite(part))


def compiled_average(kind: int, theta: np.ndarray, y: float, mean: float, var: float) -> np.ndarray:
    """log⟨p(y|f)⟩, q and r of one row, from the compiled loops."""
    from inducing.model.likelihoods.loops import BY_KIND, pointer, tilt_rows

    out = np.empty((1, 3))
    tilt_rows(pointer(BY_KIND[kind]), theta, np.array([y]), np.array([mean]), np.array([var]), out)
    return out[0]


@pytest.mark.parametrize(
    ("y", "mean", "var"), [(0.0, 700.0, 1e4), (3.0, 0.0, 1e10), (1e6, -20.0, 1e-3), (5.0, 700.0, 1e-6)]
)
def test_counts_and_means_far_apart(y: float, mean: float, var: float) -> None:
    """The compiled and the vectorised average of the same count."""
    got, compiled = Poisson().tilted(y, mean, var), compiled_average(6, np.zeros(1), y, mean, var)
    for a, b, unit in zip(got, compiled, (1.0, np.sqrt(var), var), strict=True):
        assert_allclose(a * unit, b * unit, rtol=1e-6, atol=1e-8)


def test_logistic_where_f_is_known() -> None:
    for var in (1e-40, 1e-300):
        value, q, r = Logistic().tilted(1.0, 0.7, var)
        p = 1 / (1 + np.exp(-0.7))
        assert_allclose([value, q, r], [np.log(p), 1 - p, -p * (1 - p)], rtol=1e-14)


@pytest.mark.parametrize("kind", range(8))
def test_compiled_loops_end(kind: int) -> None:
    """Whatever comes, also what `check` would refuse: numbers or NaN, no exception, no endless loop."""
    theta = np.array([0.3, 1.0]) if kind == 5 else np.array([0.3])
    numbers = [0.0, 1.0, -1.0, 1e-300, 700.0, 1e154, -1e300, np.inf, np.nan]
    for y in numbers:
        for mean in numbers:
            for var in (0.0, -1.0, 1e-300, 1e-40, 1.0, 1e10, 1e300, np.inf, np.nan):
                assert len(compiled_average(kind, theta, y, mean, var)) == 3
    assert np.all(np.isnan(compiled_average(kind, theta, 1.0, 0.0, np.nan)))


# columns, parameters, descriptions --------------------------------------------------------------------------


def test_further_columns_default() -> None:
    """An exposure of 1, times that were seen, observations without a limit."""
    mean, var = np.array([0.2, 1.0]), np.array([0.5, 2.0])
    for likelihood, y, further in (
        (Poisson(), [3.0, 0.0], 1.0),
        (NegativeBinomial(2.0), [3.0, 0.0], 1.0),
        (Gamma(2.0), [0.3, 4.0], 0.0),
        (Weibull(2.0), [0.3, 4.0], 0.0),
        (CensoredGaussian(0.2), [0.3, 4.0], 0.0),
    ):
        both = np.column_stack([y, np.full(2, further)])
        for power in POWERS:
            for a, b in zip(
                likelihood.tilted(y, mean, var, power), likelihood.tilted(both, mean, var, power)
            ):
                assert_allclose(a, b, rtol=1e-13)
    offset = Poisson().tilted(np.array([[3.0, 2.0]]), 0.2, 0.5)
    assert_allclose(offset.q, Poisson().tilted(3.0, 0.2 + np.log(2.0), 0.5).q, rtol=1e-10)


def test_special_cases_of_each_other() -> None:
    y, mean, var = np.array([0.5, 3.0]), np.array([0.2, 1.0]), np.array([0.5, 2.0])
    pairs = [
        (Exponential(), Weibull(1.0)),
        (Exponential(), Gamma(1.0)),
        (Laplace(0.6), AsymmetricLaplace(0.3, 0.5)),
        (Gaussian(0.4), CensoredGaussian(0.4)),
    ]
    for one, other in pairs:
        for power in POWERS:
            for a, b in zip(one.tilted(y, mean, var, power), other.tilted(y, mean, var, power)):
                assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    for a, b in zip(Logistic().tilted(1.0, mean, var), Binomial().tilted([[1.0, 1.0]] * 2, mean, var)):
        assert_allclose(a, b, rtol=1e-9)
    for a, b in zip(Probit(0.4).tilted(1.0, mean, var), Ordinal(0.0, (), 0.4).tilted(1.0, mean, var)):
        assert_allclose(a, b, rtol=1e-12)
    counts = np.array([3.0, 0.0])
    for a, b in zip(Poisson().tilted(counts, mean, var), NegativeBinomial(1e11).tilted(counts, mean, var)):
        assert_allclose(a, b, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_parameters_and_descriptions(case: Case) -> None:
    likelihood = case.likelihood
    spec = json.loads(json.dumps(likelihood.spec()))
    assert likelihoods.from_spec(spec) == likelihood
    assert likelihood.with_parameters(likelihood.parameters) == likelihood
    assert set(likelihood.held) <= set(likelihood.names) == set(likelihood.parameters)
    with pytest.raises(UnknownNameError, match="no parameter"):
        likelihood.with_parameters({"length": 1.0})
    for name, (low, high) in likelihood.bounds.items():
        assert np.all(
            (low <= np.asarray(likelihood.parameters[name])) & (likelihood.parameters[name] <= high)
        )
    assert (Ordinal().unconstrained, Probit().unconstrained) == (("threshold",), ())


@pytest.mark.parametrize(
    ("likelihood", "y", "message"),
    [
        (Poisson(), [[1.0, 1.0], [2.0, 0.0]], "exposure must be positive, but row 1 has 0"),
        (Poisson(), [1e13], "must not exceed"),
        (Binomial(), [1.0], "two columns"),
        (Binomial(), [[3.0, 2.0]], "more successes than trials, but row 0 has 3"),
        (Binomial(), [[0.0, 0.0]], "one trial or more"),
        (Gamma(), [1.0, 0.0], "times must be positive, but row 1 has 0"),
        (Weibull(), [[1.0, 0.0], [1.0, 0.5]], "row 1 has 0.5"),
        (CensoredGaussian(), [[1.0, 2.0]], "-1, 0 or 1, but row 0 has 2"),
        (Beta(), [0.5, 1.0], "between 0 and 1, but row 1 has 1"),
        (Ordinal(), [0.0, 3.0], "from 0 to 2, but row 1 has 3"),
        (Softmax(3), [0.0, 1.5], "from 0 to 2, but row 1 has 1.5"),
        (StudentT(), [1.0, 1e154], "row 1 has 1e\\+154"),
    ],
)
def test_observations_refused_by_row(likelihood: Likelihood, y: Any, message: str) -> None:
    with pytest.raises(LabelError, match=message):
        likelihood.check(y)


def test_other_refusals() -> None:
    for make in (
        lambda: Contaminated(share=0.0),
        lambda: Contaminated(inflation=1.0),
        lambda: AsymmetricLaplace(level=1.0),
        lambda: Ordinal(gaps=(1.0, -1.0)),
        lambda: Beta(0.0),
        lambda: Gamma(-1.0),
        lambda: Gaussian(1e-200),
        lambda: StudentT(4.0, 1e80),
        lambda: Softmax(1),
        lambda: Gaussian().tilted(0.0, 0.0, 1.0, -0.5),
        lambda: Gaussian().tilted(0.0, 1e80, 1.0),
        lambda: Step().expected_log(1.0, 0.0, 1.0),
        lambda: Softmax(2).tilted(1.0, 0.0, 1.0),
        lambda: Gaussian().quantile(1.0, 0.0, 1.0),
    ):
        with pytest.raises(ParameterError):
            make()
    with pytest.raises(ShapeError, match="takes 2"):
        Poisson().check(np.ones((2, 3)))
    with pytest.raises(NonFiniteError):
        Gamma().check([[1.0, np.nan]])
    assert Poisson().check([[1.0, 0.0]], processes=True).shape == (1, 2)  # counts of two processes
    with pytest.raises(InducingError, match="several processes"):
        LearnedNoise().tilted(0.0, 0.0, 1.0)
