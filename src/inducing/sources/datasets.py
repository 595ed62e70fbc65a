"""Data sets: four generators, and those of the papers, found on disk or downloaded and checked.

Generators return (X, y) with X (n, d); `noise` is a variance, `rng` a seed or a generator. No data are
shipped: `load` looks in the folder named by the environment variable INDUCING_DATA, then in a per-user cache,
then downloads the file if it has a public address.
"""

import hashlib
import os
import shutil
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from .. import package
from ..errors import DataNotFoundError, NoiseError, ParameterError, require_one_of
from ..files.atomic import replacing
from ..numerics.arrays import Array, Seed


def sinc(
    n: int = 200, *, noise: float = 0.01, low: float = -4.0, high: float = 4.0, rng: Seed = 0
) -> tuple[Array, Array]:
    """y = sin(πx)/(πx) + e, x uniform on [low, high]. [004 §2.2, §5.1]"""
    rng = _checked(n, noise, rng)
    x = rng.uniform(low, high, n)
    return x[:, None], np.sinc(x) + _gaussian(noise, n, rng)


def friedman1(n: int = 200, *, noise: float = 1.0, rng: Seed = 0) -> tuple[Array, Array]:
    """y = 10 sin(πx₁x₂) + 20(x₃ - ½)² + 10x₄ + 5x₅ + e with ten inputs uniform on [0, 1]. [004 §3.2]"""
    from sklearn.datasets import make_friedman1

    rng = _checked(n, noise, rng)
    X, f = make_friedman1(n, n_features=10, noise=0.0, random_state=int(rng.integers(2**31)))
    return X, f + _gaussian(noise, n, rng)


def toy1d(n: int = 200, *, noise: float = 0.05, rng: Seed = 0) -> tuple[Array, Array]:
    """y = sin 2x + ½ cos 5x + e on [0, 6], without rows in (3.4, 4.4), where error bars must open."""
    rng = _checked(n, noise, rng)
    x = rng.uniform(0.0, 5.0, n)
    x = np.where(x > 3.4, x + 1.0, x)  # (n,) the gap has width 1
    return x[:, None], np.sin(2 * x) + 0.5 * np.cos(5 * x) + _gaussian(noise, n, rng)


def step_noise(
    n: int = 200, *, noise: float = 0.01, factor: float = 50.0, rng: Seed = 0
) -> tuple[Array, Array]:
    """y = sin 2x + e on [-3, 3], whose noise variance steps to factor·noise at x = 0. [after 001 Fig. 4]"""
    if not factor > 0:
        raise ParameterError(f"factor must be positive; got {factor}, use for instance 50.")
    rng = _checked(n, noise, rng)
    x = rng.uniform(-3.0, 3.0, n)
    return x[:, None], np.sin(2 * x) + _gaussian(np.where(x < 0, noise, factor * noise), n, rng)


def _checked(n: int, noise: float, rng: Seed) -> np.random.Generator:
    if n < 1:
        raise ParameterError(f"n must be at least 1; got {n}.")
    if not 0 <= noise < np.inf:
        raise NoiseError(f"noise is a variance and must be zero or positive; got {noise}.")
    return np.random.default_rng(rng)


def _gaussian(variance: float | Array, n: int, rng: np.random.Generator) -> Array:
    return np.sqrt(variance) * rng.standard_normal(n)


@dataclass(frozen=True, eq=False)
class Dataset:
    """The training and the test part of a data set; `y_test` is None where none was published."""

    name: str
    X_train: Array  # (n, d)
    y_train: Array  # (n,) or (n, p)
    X_test: Array  # (t, d)
    y_test: Array | None  # (t,) or (t, p)
    names: tuple[str, ...]  # d, the columns of X

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, train {self.X_train.shape}, test {self.X_test.shape})"


def load(name: str, *, seed: int = 0) -> Dataset:
    """Load a data set, one of `READERS`; `seed` chooses the split of boston, crabs, ascat, flights."""
    require_one_of("a data set", name, READERS)
    return READERS[name](name, np.random.default_rng(seed))


def path(name: str) -> Path:
    """Find the data set's file on this machine, or download it, and verify its checksum."""
    require_one_of("a data file", name, FILES)
    entry = FILES[name]
    cached = cache_folder() / entry.name
    folder = os.environ.get("INDUCING_DATA")
    for candidate in ([Path(folder) / entry.name] if folder else []) + [cached]:
        if candidate.is_file():
            _verify(candidate, entry)
            return candidate
    if entry.url is None:
        put = f"put {entry.name} into {cached.parent}, or set INDUCING_DATA to a folder that holds it"
        raise DataNotFoundError(f"Data set {name!r} has no public address: {put}.")
    _download(entry, cached)
    return cached


def cache_folder() -> Path:
    """Return the per-user folder that downloads go to."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inducing"


@dataclass(frozen=True)
class DataFile:
    """A file of a data set: its name, its checksum, and its public address if it has one."""

    name: str
    sha256: str
    url: str | None = None


# a line for each file: the data set, the file's name, its sha256, and its public address if it has one
FILES = {
    name: DataFile(*known)
    for name, *known in map(str.split, files(__package__).joinpath("checksums.txt").read_text().splitlines())
}


def _verify(file: Path, entry: DataFile) -> None:
    """Raise if the file's checksum differs from that of the entry."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != entry.sha256:
        raise DataNotFoundError(f"{file} is not the file expected: its sha256 is {digest[:12]}…")


def _download(entry: DataFile, target: Path) -> None:
    """Download a file; an interrupted or wrong download never takes its place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    assert entry.url is not None
    with replacing(target) as temporary:
        try:
            with urllib.request.urlopen(entry.url, timeout=60) as response, temporary.open("wb") as stream:
                shutil.copyfileobj(response, stream)
        except OSError as error:
            raise DataNotFoundError(
                f"{entry.name} could not be downloaded from {entry.url} ({error}): put it in {target.parent}"
            ) from error
        _verify(temporary, entry)


# Readers: (name, rng) -> Dataset, one for each format of the files


def _split_file(name: str, rng: np.random.Generator) -> Dataset:
    """Read a file that holds the split used in the literature."""
    with np.load(path(name)) as a:
        X_train, X_test = a["X_train"].astype(np.float64), a["X_test"].astype(np.float64)
        y_train, y_test = a["y_train"], a["y_test"] if "y_test" in a else None
    names = tuple(f"x{i + 1}" for i in range(X_train.shape[1]))
    return Dataset(name, X_train, y_train, X_test, y_test, names)


def _boston(name: str, rng: np.random.Generator) -> Dataset:
    """Read Boston housing; 481 random rows to train on, 25 to test. [004 §5.1]"""
    with np.load(path(name)) as a:
        X, y, names = a["X"], a["y"], a["columns"]
    return _split(name, X, y, _random_mask(len(y), 25, rng), names[:-1])


def _crabs(name: str, rng: np.random.Generator) -> Dataset:
    """Read sex (±1), five measurements and species; 20 of each sex and species to train on. [004 §5.2]"""
    with np.load(path(name)) as a:
        X, y, species, names = a["X"], a["sex"], a["species"], a["columns"]
    test = np.ones(len(y), dtype=bool)
    for group in np.unique(np.column_stack([y, species]), axis=0):
        rows = np.flatnonzero((y == group[0]) & (species == group[1]))
        test[rng.permutation(rows)[: len(rows) * 2 // 5]] = False
    return _split(name, np.column_stack([X, species]), y, test, (*names, "species"))


def _sarcos(name: str, rng: np.random.Generator) -> Dataset:
    """Read positions, velocities, accelerations (21) and 7 torques; every fifth block of 128 rows is test."""
    with np.load(path(name)) as a:
        X, Y = a["X"], a["Y"]
    names = [f"{what}{joint}" for what in ("position", "velocity", "acceleration") for joint in range(1, 8)]
    return _split(name, X, Y, np.arange(len(X)) // 128 % 5 == 4, names)


def _ascat(name: str, rng: np.random.Generator) -> Dataset:
    """Read ocean wind (u, v) in m/s at longitude and latitude; a random tenth is held out."""
    with np.load(path(name)) as a:
        X, Y = a["lonlat"].astype(np.float64), np.column_stack([a["u"], a["v"]]).astype(np.float64)
    return _split(name, X, Y, _random_mask(len(X), len(X) // 10, rng), ("longitude", "latitude"))


def _flights(name: str, rng: np.random.Generator) -> Dataset:
    """Read delays of three million flights, in minutes, by date, distance and airports; 100,000 held out."""
    pd = package("pandas")
    table = pd.read_parquet(path(name))
    where = pd.read_csv(path("airports"), usecols=["iata", "latitude", "longitude"]).set_index("iata")
    date = table["date"]
    columns = {"day": date.dt.day_of_year, "weekday": date.dt.day_of_week}
    columns |= {"hour": date.dt.hour + date.dt.minute / 60, "distance": table["distance"]}
    for end in ("origin", "destination"):
        for coordinate in ("longitude", "latitude"):
            columns[f"{end}_{coordinate}"] = table[end].map(where[coordinate])
    X = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns.values()])
    return _split(name, X, table["delay"].to_numpy(np.float64), _random_mask(len(X), 100_000, rng), columns)


def _random_mask(n: int, held_out: int, rng: np.random.Generator) -> Array:
    test = np.zeros(n, dtype=bool)
    test[rng.permutation(n)[:held_out]] = True
    return test


def _split(name: str, X: Array, y: Array, test: Array, names: Any) -> Dataset:
    return Dataset(name, X[~test], y[~test], X[test], y[test], tuple(str(n) for n in names))


READERS: dict[str, Callable[[str, np.random.Generator], Dataset]] = {
    **dict.fromkeys(("kin40k", "pumadyn32nm", "snelson1d", "sonar", "usps"), _split_file),
    "boston": _boston,
    "crabs": _crabs,
    "sarcos": _sarcos,
    "ascat": _ascat,
    "flights": _flights,
}
