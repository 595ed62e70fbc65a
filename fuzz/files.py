"""Model files after mutations of their bytes, records and tensors: a ModelFileError, or a model that works.

No code runs, memory stays a small multiple of the file, and what loads predicts finite numbers.
"""

from __future__ import annotations

import json
import tempfile
import tracemalloc
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from safetensors.numpy import save as to_bytes

import inducing as ig
from fuzz.mutations import BYTES, JSON, altered, mutated
from inducing.errors import InducingError, ModelFileError
from inducing.files.models import read
from inducing.files.tensors import digest

SHARE = st.floats(0, 1)
RECORD = st.lists(st.tuples(SHARE, st.sampled_from(["set", "delete", "copy"]), JSON), max_size=3)
TENSOR = st.lists(
    st.tuples(
        SHARE,
        st.sampled_from(
            ["drop", "ravel", "single", "int", "empty", "nan", "huge", "tiny", "grow", "zero", "faint"]
        ),
    ),
    max_size=2,
)
CASES = st.one_of(
    st.tuples(st.just("bytes"), st.integers(0, 10), BYTES),
    st.tuples(st.just("record"), st.integers(0, 10), st.tuples(RECORD, TENSOR)),
)
FOUND: list[Any] = [
    # "<U200000000" of a classifier's labels took 2.3 GB; 1e400 as a count was an OverflowError
    ("classes_dtype", 1, "<U200000000"),
    ("n_iterations", 0, float("inf")),
    ("order", 3, 10**9),
    ("record", 0, ([], [(0.9999999999999999, "huge")])),  # predicted infinity
    ("record", 0, ([], [(0.75, "tiny")])),
    ("noise_posterior", 7, None),  # an IndexError of what was predicted
    ("one_output", 7, 0),
    ("missing_values", 10, None),  # a TypeError
    ("record", 9, ([], [(0.75, "tiny")])),  # a density in a box without volume was NaN
    ("feature_names", 10, {"": None, "0": None, "00": None}),  # names in a dictionary were an array of none
    ("record", 6, ([], [(0.375, "tiny"), (0.3125, "tiny")])),  # rows all alike without noise: NaN
    ("record", 6, ([], [(0.375, "faint"), (0.3125, "tiny")])),  # and with noise that rounding drowns
    ("record", 1, ([(0.953125, "delete", None)] * 3, [])),  # a classifier without classes: an IndexError
]
MODELS = 11
MOST = 64 << 20  # bytes that opening one of these files of kilobytes may take


@cache
def models() -> tuple[bytes, ...]:
    """A file of each kind."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(40, 2))
    y = np.sin(5 * X[:, 0])
    trigonometric = ig.kernels.Trigonometric(2)
    made = [
        ig.SparseGPRegressor(n_inducing=5, max_iter=1, random_state=0).fit(X, y),
        ig.SparseGPClassifier(n_inducing=5, max_iter=1, random_state=0).fit(
            X, np.array(["a", "bb", "c"])[rng.integers(0, 3, 40)]
        ),
        ig.OnlineGPRegressor(n_inducing=5, warmup=60, random_state=0).partial_fit(X, y),
        ig.condition(trigonometric, ig.bases.Points(X[:3]), "fitc", 0.1, X, y),
        ig.OnlineGPRegressor(n_inducing=5, warmup=10, max_iter=1, random_state=0).partial_fit(X, y),
        ig.condition(ig.kernels.Matern32() + ig.kernels.Linear(), ig.bases.Points(X[:3]), "exact", 0.1, X, y),
        ig.SparseGPRegressor(n_inducing=5, max_iter=1, approximation="neighbours", random_state=0).fit(X, y),
        ig.SparseGPRegressor(n_inducing=5, max_iter=1, noise="learned", random_state=0).fit(X, y),
        ig.SparseGPRegressor(n_inducing=5, max_iter=1, outputs="coregionalised", random_state=0).fit(
            X, np.column_stack([y, X[:, 1]])
        ),
        ig.GPDensity().fit(X),
        ig.SparseGPRegressor(n_inducing=5, max_iter=1, random_state=0).fit(
            pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0.5, "x", "y")}), y
        ),
    ]
    from inducing.files.models import save

    raws = []
    with tempfile.TemporaryDirectory() as folder:
        for model in made:
            save(model, Path(folder) / "m")
            raws.append((Path(folder) / "m").read_bytes())
    return tuple(raws)


def forged(raw: bytes, folder: Path, change: Any) -> bytes:
    """A file with a right checksum after `change` of record and tensors: what a stranger could write."""
    (folder / "m").write_bytes(raw)
    record, tensors = read(folder / "m")
    record, tensors = change(record, tensors)
    text = json.dumps(record)
    head = {"format": "inducing", "format_version": "1", "model": text, "sha256": digest(text, tensors)}
    return to_bytes(tensors, head)


def with_tensors(tensors: dict[str, np.ndarray], changes: list[tuple[float, str]]) -> dict[str, np.ndarray]:
    tensors = dict(tensors)
    for share, kind in changes:
        name = sorted(tensors)[min(int(share * len(tensors)), len(tensors) - 1)]
        a = tensors[name]
        number = {"nan": np.nan, "huge": 1e308, "tiny": 1e-308, "zero": 0.0, "faint": 1e-30}
        if kind == "drop":
            del tensors[name]
        elif kind in number:
            tensors[name] = np.full_like(a, number[kind])
        else:
            tensors[name] = {
                "ravel": lambda a: a.ravel(),
                "single": lambda a: a.astype(np.float32),
                "int": lambda a: np.asarray(np.nan_to_num(a)).astype(np.int64),
                "empty": lambda a: a[:0] if a.ndim else a.reshape(1)[:0],
                "grow": lambda a: np.concatenate([a, a]) if a.ndim else np.stack([a, a]),
            }[kind](a)
        if not tensors:
            break
    return tensors


def replaced(record: Any, key: str, value: Any) -> Any:
    if isinstance(record, dict):
        return {k: value if k == key else replaced(v, key, value) for k, v in record.items()}
    return [replaced(v, key, value) for v in record] if isinstance(record, list) else record


def check(case: tuple[str, int, Any]) -> None:
    kind, which, changes = case
    raw = models()[which % MODELS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if kind == "bytes":
            content = mutated(raw, changes)
        elif kind == "record":
            try:
                content = forged(
                    raw, folder, lambda r, t: (altered(r, changes[0]), with_tensors(t, changes[1]))
                )
            except (UnicodeEncodeError, ValueError):
                return  # not even a file
        else:
            content = forged(raw, folder, lambda r, t: (replaced(r, kind, changes), t))
        (folder / "m").write_bytes(content)
        for light in (False, True):
            _load_and_ask(folder / "m", light)


def _load_and_ask(path: Path, light: bool) -> None:
    tracemalloc.start()
    try:
        model = ig.load(path, light=light)
    except ModelFileError as error:
        assert "\n" not in str(error)
        return
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < MOST, f"{most} bytes for a file of {path.stat().st_size}"
    try:
        at: Any = np.full((2, 2), 0.3)
        if (encoder := getattr(model, "encoder_", None)) is not None:
            at = pd.DataFrame({"a": [0.3, 0.4], "b": ["x", "y"]})
            at = encoder.transform(at) if light else at
        answer = model.predict(at) if hasattr(model, "predict") else model.pdf(at)
        values = answer[0] if isinstance(answer, tuple) else answer
        assert values.dtype.kind != "f" or np.all(np.isfinite(values)), values
    except InducingError as error:  # units that no query fits, in one sentence
        assert "\n" not in str(error)
