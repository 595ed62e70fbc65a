"""Checkpoints: the best point of an optimisation on disk, from which a killed one goes on."""

from __future__ import annotations

import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import ModelFileError
from .atomic import replacing

INTERVAL = 5.0  # seconds between writes


@dataclass(eq=False)
class Checkpoint:
    """A vector in a .npz file, written atomically, that only fits the problem it came from."""

    path: Path
    fingerprint: str
    _last: float = 0.0
    _best: float = -np.inf

    def load(self, otherwise: np.ndarray) -> np.ndarray:
        """The point kept in the file, or `otherwise` when there is no file yet."""
        if not self.path.exists():
            return otherwise
        try:
            with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as held:
                x, fingerprint = held["x"], str(held["fingerprint"])
        except (OSError, ValueError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile) as error:
            raise ModelFileError(f"the checkpoint {self.path} cannot be read ({error}): delete it") from error
        if fingerprint != self.fingerprint or x.shape != otherwise.shape:
            raise ModelFileError(
                f"the checkpoint {self.path} is of another problem: delete it or name another"
            )
        return x

    def save(self, x: np.ndarray, value: float, *, force: bool = False) -> None:
        """Keep x if no point of a greater value was kept before; now and then, or at once with `force`."""
        if value < self._best or (not force and time.monotonic() - self._last < INTERVAL):
            return
        with replacing(self.path) as part, open(part, "wb") as file:
            np.savez(file, x=x, fingerprint=np.array(self.fingerprint))
        self._last, self._best = time.monotonic(), value
