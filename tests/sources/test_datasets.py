"""Generators follow their formulas; files are found, checked and split as the papers say."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from inducing.errors import DataNotFoundError, NoiseError, ParameterError, UnknownNameError
from inducing.sources import datasets

GENERATORS = [datasets.sinc, datasets.friedman1, datasets.toy1d, datasets.step_noise]


@pytest.mark.parametrize("generate", GENERATORS)
def test_generators_repeat_with_a_seed_and_accept_a_generator(generate):
    X, y = generate(30, rng=3)
    assert X.shape[0] == 30 and X.ndim == 2 and y.shape == (30,)
    np.testing.assert_array_equal(y, generate(30, rng=3)[1])
    np.testing.assert_array_equal(y, generate(30, rng=np.random.default_rng(3))[1])
    assert not np.array_equal(y, generate(30, rng=4)[1])


@pytest.mark.parametrize("generate", GENERATORS)
def test_by_default_there_are_200_rows_of_the_seed_0(generate):
    X, y = generate()
    assert X.shape[0] == 200 and y.shape == (200,)
    np.testing.assert_array_equal(y, generate(200, rng=0)[1])


@pytest.mark.parametrize("generate", GENERATORS)
def test_generators_refuse_bad_numbers(generate):
    with pytest.raises(ParameterError, match="at least 1; got 0"):
        generate(0)
    with pytest.raises(NoiseError, match="got -1"):
        generate(10, noise=-1.0)


def test_formulas_without_noise():
    X, y = datasets.sinc(50, noise=0.0, low=-2.0, high=2.0)
    assert np.all(np.abs(X) <= 2)
    np.testing.assert_allclose(y, np.sin(np.pi * X[:, 0]) / (np.pi * X[:, 0]), rtol=1e-12)
    X, y = datasets.friedman1(50, noise=0.0)
    assert X.shape == (50, 10) and X.min() >= 0 and X.max() <= 1
    f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    np.testing.assert_allclose(y, f, rtol=1e-12)
    X, y = datasets.toy1d(500, noise=0.0)
    assert not np.any((X > 3.4) & (X < 4.4)) and X.min() >= 0 and 5 < X.max() <= 6
    np.testing.assert_allclose(y, (np.sin(2 * X) + 0.5 * np.cos(5 * X))[:, 0], rtol=1e-12)


def test_noise_is_a_variance():
    clean, noisy = datasets.friedman1(20_000, noise=0.0)[1], datasets.friedman1(20_000, noise=4.0)[1]
    assert np.var(noisy - clean) == pytest.approx(4.0, rel=0.05)


def test_step_noise_steps_at_zero():
    X, y = datasets.step_noise(20_000, noise=0.01, factor=50.0)
    e, left = y - np.sin(2 * X[:, 0]), X[:, 0] < 0
    assert np.var(e[left]) == pytest.approx(0.01, rel=0.05)
    assert np.var(e[~left]) == pytest.approx(0.5, rel=0.05)
    with pytest.raises(ParameterError, match="factor must be positive"):
        datasets.step_noise(10, factor=0.0)


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No data folder, an empty cache."""
    monkeypatch.delenv("INDUCING_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_unknown_names_list_the_known():
    with pytest.raises(UnknownNameError, match="a data set must be one of kin40k"):
        datasets.load("mnist")
    with pytest.raises(UnknownNameError, match="a data file must be one of"):
        datasets.path("mnist")


def test_a_set_without_an_address_says_where_to_put_it(nowhere):
    with pytest.raises(DataNotFoundError, match=r"put kin40k.npz into .*inducing, or set INDUCING_DATA"):
        datasets.load("kin40k")


def _file(monkeypatch, content, url=None):
    file = datasets.DataFile("made-up.npz", hashlib.sha256(content).hexdigest(), url)
    monkeypatch.setitem(datasets.FILES, "made-up", file)


def test_the_data_folder_comes_before_the_cache(nowhere, monkeypatch):
    _file(monkeypatch, b"content")
    cached = datasets.cache_folder() / "made-up.npz"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"content")
    assert datasets.path("made-up") == cached
    (nowhere / "made-up.npz").write_bytes(b"content")
    monkeypatch.setenv("INDUCING_DATA", str(nowhere))
    assert datasets.path("made-up") == nowhere / "made-up.npz"


def test_a_file_with_another_checksum_is_refused(nowhere, monkeypatch):
    _file(monkeypatch, b"content")
    (nowhere / "made-up.npz").write_bytes(b"other")
    monkeypatch.setenv("INDUCING_DATA", str(nowhere))
    with pytest.raises(DataNotFoundError, match="is not the file expected: its sha256"):
        datasets.path("made-up")


def test_downloads_are_checked_kept_and_never_half_written(nowhere, monkeypatch):
    remote = nowhere / "remote.npz"
    remote.write_bytes(b"content" * 1000)
    _file(monkeypatch, b"content" * 1000, remote.as_uri())
    file = datasets.path("made-up")
    assert file.parent == datasets.cache_folder() and file.read_bytes() == remote.read_bytes()
    remote.unlink()
    assert datasets.path("made-up") == file  # from the cache
    file.unlink()
    with pytest.raises(DataNotFoundError, match="could not be downloaded"):
        datasets.path("made-up")
    remote.write_bytes(b"tampered")
    with pytest.raises(DataNotFoundError, match="not the file expected"):
        datasets.path("made-up")
    assert list(datasets.cache_folder().iterdir()) == []


@pytest.fixture
def real_data():
    """Loads a data set by name, or skips when its files are not at hand; never downloads."""

    def load(name):
        folder = os.environ.get("INDUCING_DATA")
        if not folder:
            pytest.skip("real data: INDUCING_DATA is not set")
        for needed in [name, "airports"] if name == "flights" else [name]:
            file = datasets.FILES[needed].name
            if not (Path(folder) / file).is_file():
                pytest.skip(f"real data: INDUCING_DATA holds no {file}")
        return datasets.load(name)

    return load


SHAPES = {  # train rows, test rows, inputs, outputs (0: y is a vector)
    "kin40k": (10_000, 30_000, 8, 0),
    "pumadyn32nm": (7168, 1024, 32, 0),
    "snelson1d": (200, 301, 1, 0),
    "sonar": (104, 104, 60, 0),
    "usps": (7291, 2007, 256, 0),
    "boston": (481, 25, 13, 0),
    "crabs": (80, 120, 6, 0),
    "sarcos": (3584, 865, 21, 7),
    "ascat": (117_655, 13_072, 2, 2),
    "flights": (2_900_000, 100_000, 8, 0),
}


def test_every_reader_is_tested_and_has_a_file():
    assert set(SHAPES) == set(datasets.READERS)
    assert set(datasets.READERS) | {"airports"} == set(datasets.FILES)


@pytest.mark.parametrize("name", SHAPES)
def test_real_data_have_their_published_shapes(name, real_data):
    data = real_data(name)
    n, t, d, p = SHAPES[name]
    assert data.X_train.shape == (n, d) and data.X_test.shape == (t, d) and len(data.names) == d
    assert data.y_train.shape == ((n, p) if p else (n,))
    assert (
        np.isfinite(data.X_train).all() and np.isfinite(data.X_test).all() and np.isfinite(data.y_train).all()
    )
    if name == "snelson1d":
        assert data.y_test is None
    else:
        assert data.y_test.shape == ((t, p) if p else (t,)) and np.isfinite(data.y_test).all()


def test_crabs_are_split_evenly_over_sex_and_species_with_fixed_seeds(real_data):
    data = real_data("crabs")
    groups = np.column_stack([data.y_train, data.X_train[:, -1]])
    assert np.unique(groups, axis=0, return_counts=True)[1].tolist() == [20, 20, 20, 20]
    np.testing.assert_array_equal(data.X_train, datasets.load("crabs", seed=0).X_train)
    assert not np.array_equal(data.X_train, datasets.load("crabs", seed=1).X_train)
