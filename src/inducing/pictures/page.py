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
    data = json.dumps(facts | {"model": packed(model.plain())}, default=_plain, allow_nan=False)
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return template.replace("/*evaluator*/", js_evaluator()).replace("/*data*/", data)


def packed(value: Any) -> Any:
    """Plain data whose arrays are doubles in base64, beside their shape; the page makes arrays of them."""
    if isinstance(value, np.ndarray):
        doubles = np.ascontiguousarray(value, dtype="<f8").tobytes()
        return {"shape": value.shape, "f8": base64.b64encode(doubles).decode("ascii")}
    if isinstance(value, dict):
        return {key: packed(own) for key, own in value.items()}
    return [packed(own) for own in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist()
