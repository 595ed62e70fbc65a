"""Progress of a fit reported to scikit-learn's callbacks, in versions that have them (from 1.9 on)."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..errors import ParameterError
from ..progress import reporting_to, reports_elsewhere

CallbackSupport: Any = object  # the base class with `set_callbacks`
try:
    from sklearn import callback

    CallbackSupport = callback.CallbackSupportMixin
except ImportError:
    callback = None


class _Iterations:
    """A listener of `reporting_to` that reports each iteration to the callbacks as a subtask of the fit."""

    def __init__(self, estimator: Any, fit: Any) -> None:
        self.estimator, self.fit, self.stop = estimator, fit, False

    def begin(self) -> None:
        """Begin the next iteration."""
        self.task = self.fit.subcontext(task_name="iteration")
        self.task.call_on_fit_task_begin(estimator=self.estimator)

    def end(self) -> None:
        """End the current iteration; the last one is empty, as in scikit-learn's own L-BFGS."""
        self.stop |= self.task.call_on_fit_task_end(estimator=self.estimator)

    def __call__(self, iteration: int, value: float) -> None:
        self.end()
        self.begin()


def with_callbacks(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate `fit` to report itself and its iterations to the callbacks set on the estimator, if any; no
    other progress is shown then. Fits within the fit belong to the same task.
    """

    @wraps(fit)
    def watched(self: Any, X: Any, y: Any = None, *args: Any, **options: Any) -> Any:
        if not getattr(self, "_skl_callbacks", None) or reports_elsewhere():
            return fit(self, X, y, *args, **options)
        if callable(getattr(self, "progress", None)):
            raise ParameterError("progress= and set_callbacks were both given; leave one of them out")
        return callback.with_callbacks(run)(self, X, y, *args, **options)

    def run(self: Any, X: Any, y: Any, *args: Any, **options: Any) -> Any:
        task = self._init_callback_context(max_subtasks=None)
        task.call_on_fit_task_begin(estimator=self, X=X, y=y)
        iterations = _Iterations(self, task)
        with reporting_to(iterations):
            iterations.begin()
            result = fit(self, X, y, *args, **options)
            iterations.end()
        task.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})
        return result

    return watched
