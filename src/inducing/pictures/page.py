"""`page`: one HTML file that evaluates a model in the browser, without a server or a network."""

import base64
import json
from importlib.resources import files
from typing import Any

import numpy as np

from ..files.exports import Exported, js_evaluator


def page(model: Exported, facts: dict[str, Any]) -> str:
    """The page of a model with facts about it, plain data whose arrays are packed here.

    Facts and names are data in a JSON element and become text nodes; none is ever read as HTML or code.
    """
    template = files("inducing.pictures").joinpath("explain.html").read_text(encoding="utf-8")
    data = json.dumps(facts | {"model": _packed(model)}, default=_plain, allow_nan=False)
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return template.replace("/*evaluator*/", js_evaluator()).replace("/*data*/", data)


def packed(a: np.ndarray) -> str:
    """Doubles as base64."""
    return base64.b64encode(np.ascontiguousarray(a, dtype="<f8").tobytes()).decode("ascii")


def _packed(model: Exported) -> dict[str, Any]:
    plain = model.plain()
    for own in plain["functions"]:
        own |= {key: packed(np.array(own[key])) for key in ("centers", "precisions", "heights")}
    for own in plain["processes"]:
        own |= {key: packed(np.array(own[key])) for key in ("alpha", "T", "slope")}
    return plain


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist()
