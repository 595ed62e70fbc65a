"""Checkpoints: the best point of an optimisation in a file, from which a killed one goes on."""

import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import CheckpointWarning, ModelFileError
from .atomic import replacing
from .tensors import DamagedError, digest, tensors

INTERVAL = 5.0  # seconds between writes


@dataclass(eq=False)
class Checkpoint:
    """A vector in a file, written atomically, that loads only for the problem with the same fingerprint."""

    path: Path
    fingerprint: str
    _last: float = 0.0
    _best: float = -np.inf

    def load(self, otherwise: np.ndarray) -> np.ndarray:
        """Return the point in the file, or `otherwise` if there is no file yet; raise if it does not fit."""
        if not self.path.exists():
            return otherwise
        try:
            head, arrays = tensors(self.path)
            x, fingerprint = arrays["x"], head["fingerprint"]
            if head["sha256"] != digest(fingerprint, arrays):
                raise KeyError("its contents do not match its checksum")
        except (DamagedError, KeyError) as error:
            raise ModelFileError(f"the checkpoint {self.path} cannot be read ({error}): delete it") from error
        if fingerprint != self.fingerprint or x.shape != otherwise.shape or x.dtype != otherwise.dtype:
            raise ModelFileError(f"the checkpoint {self.path} is of another problem: delete or rename it")
        return x

    def save(self, x: np.ndarray, value: float, *, force: bool = False) -> None:
        """Write x unless a point of greater value was written before, or one less than five seconds ago and
        not `force`. If the disk is full or the folder read-only, warn: the optimisation is worth more.
        """
        if value < self._best or (not force and time.monotonic() - self._last < INTERVAL):
            return
        from safetensors.numpy import save as to_bytes

        arrays, head = {"x": np.ascontiguousarray(x)}, {"fingerprint": self.fingerprint}
        try:
            with replacing(self.path) as part:
                part.write_bytes(to_bytes(arrays, head | {"sha256": digest(self.fingerprint, arrays)}))
        except OSError as error:
            message = f"the checkpoint {self.path} cannot be written ({error}); the fit goes on without"
            warnings.warn(message, CheckpointWarning, stacklevel=2)
        else:
            self._best = value
        self._last = time.monotonic()
