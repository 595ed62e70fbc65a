"""Prior means: values, derivatives, specs."""

import json
from typing import Any

import numpy as np
import pytest

from inducing.errors import ParameterError, ShapeError, UnknownNameError
from inducing.model import means
from inducing.model.problem import less_mean

X = np.random.default_rng(0).normal(size=(7, 3))
W = np.array([[1.0, -2.0], [0.5, 0.0], [3.0, 4.0]])

MEANS: dict[str, tuple[means.Mean, np.ndarray]] = {
    "zero": (means.Zero(), np.zeros(7)),
    "constant": (means.Constant(-1.5), np.full(7, -1.5)),
    "constant per output": (means.Constant([2.0, -1.0]), np.tile([2.0, -1.0], (7, 1))),
    "linear": (means.Linear(W[:, 0], 0.3), np.array([x[0] + 0.5 * x[1] + 3.0 * x[2] + 0.3 for x in X])),
    "linear per output": (
        means.Linear(W, [0.3, -0.7]),
        np.array([[x @ W[:, 0] + 0.3, x @ W[:, 1] - 0.7] for x in X]),
    ),
    "linear, shared bias": (
        means.Linear(W, 0.3),
        np.array([[x @ W[:, 0] + 0.3, x @ W[:, 1] + 0.3] for x in X]),
    ),
    "linear, no bias": (means.Linear(W[:, 1]), np.array([-2.0 * x[0] + 4.0 * x[2] for x in X])),
}

each_mean = pytest.mark.parametrize("name", MEANS)


@each_mean
def test_values(name: str) -> None:
    mean, expected = MEANS[name]
    assert mean(X).shape == expected.shape
    np.testing.assert_allclose(mean(X), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    ("name", "shape"),
    [(name, m.shape) for name, (_, m) in MEANS.items()]
    + [(name, (7, 2)) for name, (_, m) in MEANS.items() if m.ndim == 1],  # one mean for two outputs
)
def test_pullback_is_the_derivative(name: str, shape: tuple[int, ...]) -> None:
    mean, _ = MEANS[name]
    vbar = np.random.default_rng(1).normal(size=shape)

    def J(values: dict[str, Any]) -> float:
        m = mean.with_parameters(values)(X)
        return float(np.sum(vbar * (m if m.ndim == vbar.ndim else m[:, None])))

    gradients = mean.pullback(X, vbar)
    assert set(gradients) == set(mean.parameters)
    for parameter, value in mean.parameters.items():
        at = np.asarray(value)
        assert np.shape(gradients[parameter]) == at.shape
        for i in np.ndindex(at.shape):
            step = np.zeros(at.shape)
            step[i] = 0.5  # a mean is linear in its parameters: any step is exact
            slope = J({parameter: at + step}) - J({parameter: at - step})
            assert np.asarray(gradients[parameter])[i] == pytest.approx(slope, rel=1e-11, abs=1e-11)


@each_mean
def test_parameters_and_specs_round_trip(name: str) -> None:
    mean, expected = MEANS[name]
    back = means.from_spec(json.loads(json.dumps(mean.spec())))
    assert type(back) is type(mean)
    np.testing.assert_array_equal(back(X), mean(X))
    doubled = mean.with_parameters({key: 2.0 * np.asarray(value) for key, value in mean.parameters.items()})
    np.testing.assert_allclose(doubled(X), 2.0 * expected, rtol=1e-14, atol=1e-14)
    with pytest.raises(UnknownNameError, match="nonsense"):
        mean.with_parameters({"nonsense": 1.0})


@each_mean
def test_torch_gives_the_same_numbers(name: str) -> None:
    torch = pytest.importorskip("torch")
    mean, expected = MEANS[name]
    vbar = np.random.default_rng(1).normal(size=expected.shape)
    m = mean(torch.asarray(X.copy()))
    assert m.dtype == torch.float64
    np.testing.assert_allclose(m.numpy(), expected, rtol=1e-13, atol=1e-13)
    found = mean.pullback(torch.asarray(X.copy()), torch.asarray(vbar))
    for parameter, gradient in mean.pullback(X, vbar).items():
        assert tuple(found[parameter].shape) == np.shape(gradient)
        np.testing.assert_allclose(found[parameter].numpy(), gradient, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: means.Constant(np.nan), "value"),
        (lambda: means.Constant([[1.0]]), "value"),
        (lambda: means.Constant([]), "value"),
        (lambda: means.Linear([1.0, np.inf]), "weights"),
        (lambda: means.Linear(2.0), "weights"),
        (lambda: means.Linear(np.ones((2, 2, 2))), "weights"),
        (lambda: means.Linear([1.0, 2.0], np.inf), "bias"),
        (lambda: means.Linear([1.0, 2.0], [1.0, 2.0]), "bias"),
        (lambda: means.Linear(W, [1.0, 2.0, 3.0]), "bias"),
    ],
)
def test_bad_parameters_are_named(make: Any, says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        make()


def test_wrong_widths_are_refused() -> None:
    with pytest.raises(ShapeError, match="2 columns"):
        means.Linear([1.0, 2.0, 3.0])(X[:, :2])
    with pytest.raises(ShapeError, match="2 outputs"):
        means.Constant([1.0, 2.0]).pullback(X, np.ones((7, 3)))
    with pytest.raises(ShapeError, match="2 outputs"):
        means.Linear(W).pullback(X, np.ones((7, 3)))


def test_a_field_of_no_rows_is_empty() -> None:
    positions = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert means.Field(positions, positions)(np.empty((0, 3))).shape == (0,)


@pytest.mark.parametrize(
    ("spec", "error", "says"),
    [
        ({"name": "Median"}, UnknownNameError, "Median"),
        ({"value": 1.0}, ParameterError, "name"),
        ({"name": "Constant", "level": 1.0}, UnknownNameError, "level"),
        ({"name": "Linear"}, ParameterError, "weights"),
        ({"name": "Constant", "value": "high"}, ParameterError, "high"),
    ],
)
def test_bad_specs_are_refused(spec: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        means.from_spec(spec)


def test_a_mean_of_several_outputs_needs_as_many_targets() -> None:
    X, rng = np.linspace(0, 1, 4)[:, None], np.random.default_rng(0)
    y = rng.standard_normal((4, 2))

    def mean(X: Any) -> Any:
        return np.hstack([X, 2.0 * X])

    np.testing.assert_array_equal(less_mean(mean, X, y), y - mean(X))
    np.testing.assert_array_equal(less_mean(lambda X: X[:, 0], X, y), y - X)
    np.testing.assert_array_equal(less_mean(lambda X: X[:, 0], X, y[:, 0]), y[:, :1] - X)
    for wrong in (y[:, 0], np.zeros((4, 3)), np.zeros((4, 1))):
        with pytest.raises(ShapeError, match="the prior mean has 2 outputs, but y has shape"):
            less_mean(mean, X, wrong)
