"""`page`: one HTML file that evaluates a model in the browser, without a server or a network."""

import json
from importlib.resources import files
from typing import Any

import numpy as np

from ..files.exports import Exported, js_evaluator
from .packing import packed


def page(model: Exported, facts: dict[str, Any], triangles: list[dict[str, Any]] | None = None) -> str:
    """The page of a model with facts about it, plain data whose arrays are packed here; `triangles` say what
    the page makes those of the processes from, where it does not hold them.

    Facts and names are data in a JSON element and become text nodes; none is ever read as HTML or code.
    """
    template = files("inducing.pictures").joinpath("explain.html").read_text(encoding="utf-8")
    plain = model.plain()
    if triangles is not None:
        plain["processes"] = [p | {"T": own} for p, own in zip(plain["processes"], triangles)]
    data = json.dumps(facts | {"model": packed(plain)}, default=_plain, allow_nan=False)
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return template.replace("/*evaluator*/", js_evaluator()).replace("/*data*/", data)


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist()
