"""Progress of fits by scikit-learn's callbacks, and by ours where there are none."""

import sys
from importlib.util import module_from_spec, spec_from_file_location

import numpy as np
import pytest

import inducing as ig
from inducing import errors
from inducing.estimators import watching
from inducing.progress import Bars

pytest.importorskip("sklearn.callback")
X, Y = ig.datasets.friedman1(60, rng=0)
SMALL = dict(n_inducing=5, random_state=0, max_iter=4)
MODELS = {
    "regressor": (ig.SparseGPRegressor("rbf", approximation="vfe", basis="points", **SMALL), Y),
    "chosen": (ig.SparseGPRegressor(max_iter=3, random_state=0), Y),
    "several": (
        ig.SparseGPRegressor("rbf", approximation="vfe", basis="points", outputs="independent", **SMALL),
        np.stack([Y, -Y], 1),
    ),
    "classifier": (ig.SparseGPClassifier(**SMALL), Y > np.median(Y)),
    "online": (ig.OnlineGPRegressor("rbf", **SMALL), Y),
    "ridge": (ig.MultiscaleKernelRidge(n_inducing=5, max_iter=4, random_state=0), Y),
    "density": (ig.GPDensity(), None),
}


class Recorder:
    """A callback that writes down what happens, and asks for an end after some iterations."""

    def __init__(self, most=np.inf):
        self.seen, self.most, self.shown = [], most, []

    def setup(self, estimator, context):
        self.seen.append("setup")

    def on_fit_task_begin(self, estimator, context):
        self.seen.append(f"begin {context.task_name}")
        self.shown.append(Bars(True).due)

    def on_fit_task_end(self, estimator, context, *, X, y, fitted_estimator):
        self.seen.append(f"end {context.task_name}")
        if context.parent is None:
            self.at_end = X, y, fitted_estimator
        return self.seen.count("end iteration") >= self.most

    def teardown(self, estimator, context):
        self.seen.append("teardown")


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_and_its_iterations_are_tasks(name, capsys):
    model, y = MODELS[name]
    rows = X[:, :1] if name == "density" else X
    told = Recorder()
    model.set_callbacks(told).set_params(**({"verbose": 1} if "verbose" in model.get_params() else {}))
    model.fit(rows, y)
    assert told.seen[:3] == ["setup", "begin fit", "begin iteration"]
    assert told.seen[-3:] == ["end iteration", "end fit", "teardown"]
    assert told.seen.count("setup") == 1  # also where models are fitted inside
    assert told.seen.count("begin iteration") == told.seen.count("end iteration")
    if name not in ("density", "ridge"):  # whose iterations have no progress of ours either
        assert told.seen.count("end iteration") > min(3, model.n_iter_)
    given, targets, fitted = told.at_end
    assert given is rows and targets is y
    if name != "density":
        np.testing.assert_array_equal(fitted.predict(X), model.predict(X))
    assert "iteration" not in capsys.readouterr().err  # with callbacks, ours shows nothing
    assert "_callback_fit_ctx" not in vars(model)
    assert told.shown[-1] == np.inf  # no bar inside the fit
    assert Bars(True).due < np.inf


def test_the_fit_is_the_same_and_can_be_ended():
    model = ig.SparseGPRegressor("rbf", approximation="vfe", basis="points", n_inducing=5, random_state=0)
    values, iterations = model.fit(X, Y).predict(X), model.n_iter_
    np.testing.assert_array_equal(model.set_callbacks(Recorder()).fit(X, Y).predict(X), values)
    short = Recorder(most=2)
    model.set_callbacks(short).fit(X, Y)
    assert short.seen.count("end iteration") < 6 < iterations
    assert np.isfinite(model.predict(X)).all()


def test_progress_and_callbacks_are_not_both_given():
    model = MODELS["regressor"][0].set_params(progress=lambda i, value: None)
    with pytest.raises(errors.ParameterError, match="both given"):
        model.set_callbacks(Recorder()).fit(X, Y)
    calls = []
    model.set_callbacks().set_params(progress=lambda i, value: calls.append(i)).fit(X, Y)
    assert calls == list(range(1, len(calls) + 1)) and calls
    model.set_params(progress=None)


def test_callbacks_come_from_a_search():
    from sklearn.callback import ProgressBar
    from sklearn.model_selection import GridSearchCV

    seen = Recorder()
    seen.max_propagation_depth = None
    model = ig.SparseGPRegressor("rbf", approximation="vfe", basis="points", **SMALL)
    GridSearchCV(model, {"n_inducing": [3, 5]}, cv=2).set_callbacks(seen).fit(X, Y)
    assert seen.seen.count("setup") == seen.seen.count("teardown") == 1
    assert seen.seen.count("end iteration") >= 5
    model.set_callbacks(ProgressBar()).fit(X, Y)


def test_without_callbacks_of_scikit_learn(monkeypatch, capsys):
    import sklearn

    monkeypatch.setitem(sys.modules, "sklearn.callback", None)
    monkeypatch.delattr(sklearn, "callback", raising=False)
    spec = spec_from_file_location("inducing.estimators.watching_before", watching.__file__)
    before = module_from_spec(spec)
    spec.loader.exec_module(before)
    assert before.CallbackSupport is object

    class Model:
        @before.with_callbacks
        def fit(self, X, y=None):
            with ig.progress.Line(True) as line:
                line(1, 0.0)
            return X

    assert Model().fit(3) == 3
    assert "iteration 1" in capsys.readouterr().err
