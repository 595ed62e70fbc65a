"""Checkpoints after mutations of their bytes: a ModelFileError, or the point that was saved."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.mutations import BYTES, mutated
from inducing.errors import ModelFileError
from inducing.files.checkpoints import Checkpoint

CASES = BYTES
FOUND: list[Any] = []
POINT = np.linspace(-1.0, 1.0, 7)


@cache
def saved() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        Checkpoint(Path(folder) / "c", "fingerprint").save(POINT, 1.0, force=True)
        return (Path(folder) / "c").read_bytes()


def check(case: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c"
        path.write_bytes(mutated(saved(), case))
        try:
            x = Checkpoint(path, "fingerprint").load(np.zeros(7))
        except ModelFileError:
            return
        np.testing.assert_array_equal(x, POINT)
