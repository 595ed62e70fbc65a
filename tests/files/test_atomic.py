"""Replacing a file: whole, with its permissions, through names nobody can guess, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import inducing as ig
from inducing.errors import CheckpointWarning, ModelFileError, ParameterError
from inducing.files import atomic, checkpoints
from inducing.files.atomic import replacing, require_apart
from inducing.files.checkpoints import Checkpoint
from inducing.files.models import save


@pytest.fixture
def model() -> ig.Posterior:
    X = np.linspace(0.0, 1.0, 8)[:, None]
    return ig.condition(ig.kernels.RBF(), ig.bases.Points(X), "fitc", 0.1, X, X[:, 0])


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_permissions_stay(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(mode)
    with replacing(path) as part:
        assert part.stat().st_mode & 0o777 == mode
        part.write_bytes(b"new")
    assert path.read_bytes() == b"new" and path.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize(("umask", "mode"), [(0o027, 0o640), (0, 0o666), (0o022, 0o644)])
def test_a_new_file_follows_the_umask(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with replacing(tmp_path / "new") as part:
            part.write_bytes(b"new")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == mode


def test_the_umask_is_never_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to all threads: two that set it to nothing for a moment may leave it there."""
    monkeypatch.setattr(os, "umask", None)
    with replacing(tmp_path / "new") as part:
        part.write_bytes(b"new")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_owner_and_group_stay(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.write_bytes(b"old")
    path.chmod(0o640)
    os.chown(path, 4321, 1234)
    with replacing(path) as part:
        part.write_bytes(b"new")
    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (4321, 1234, 0o640)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
@pytest.mark.parametrize(("group", "mode"), [(1234, 0o604), (None, 0o664)])
def test_a_group_that_cannot_be_given_lets_no_other_in(
    group: int | None, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    path = tmp_path / "theirs"
    path.write_bytes(b"old")
    path.chmod(0o664)
    if group is not None:
        os.chown(path, -1, group)
    monkeypatch.setattr(os, "fchown", refused)
    with replacing(path) as part:
        part.write_bytes(b"new")
    assert path.read_bytes() == b"new" and path.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "folder"])
def test_what_is_no_file_is_not_replaced(tmp_path: Path, model: ig.Posterior, kind: str) -> None:
    """-o /dev/null must not put a file in the place of the device."""
    path = tmp_path / "thing"
    if kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    before, out = path.stat().st_mode, path
    if kind == "link to a pipe":
        out = tmp_path / "link"
        os.symlink(path, out)
    with pytest.raises(ModelFileError, match="cannot be written to .*: it is no ordinary file"):
        save(model, out)
    assert path.stat().st_mode == before and set(tmp_path.iterdir()) == {path, out}


def test_a_model_that_does_not_fit_into_memory_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exact process of 20,000 rows is a file of half a megabyte, and 3.2 GB when it is read."""

    def full(*_: object) -> None:
        raise MemoryError("Unable to allocate 2.98 GiB")

    X = np.linspace(0.0, 1.0, 8)[:, None]
    save(ig.condition(ig.kernels.RBF(), ig.bases.Points(X), "exact", 0.1, X, X[:, 0]), tmp_path / "m")
    monkeypatch.setattr("inducing.files.records.gram_factor", full)
    with pytest.raises(ModelFileError, match=r"needs more memory than there is: Unable to allocate 2.98 GiB"):
        ig.load(tmp_path / "m")


def test_planted_links_are_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "model"
    victim.write_bytes(b"precious")
    names = set()
    for _ in range(3):
        with replacing(path) as part:
            names.add(part.name)
            part.write_bytes(b"new")
    assert len(names) == 3 and not any(str(os.getpid()) == name.split(".")[1] for name in names)
    os.symlink(victim, tmp_path / f".{os.getpid()}.model")
    os.symlink(victim, tmp_path / f"{atomic.PART}planted")
    with replacing(path) as part:
        part.write_bytes(b"newer")
    assert victim.read_bytes() == b"precious" and path.read_bytes() == b"newer"


def test_a_taken_name_is_an_error_not_a_way_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda n: "guessed")
    os.symlink(victim, tmp_path / f"{atomic.PART}guessed")
    with pytest.raises(FileExistsError), replacing(tmp_path / "model") as part:
        part.write_bytes(b"new")
    assert victim.read_bytes() == b"precious"


def test_the_file_behind_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    os.symlink(tmp_path / "real", tmp_path / "link")
    with replacing(tmp_path / "link") as part:
        part.write_bytes(b"new")
    assert (tmp_path / "real").read_bytes() == b"new" and (tmp_path / "link").is_symlink()


KILLED = """
import os, signal, sys
from pathlib import Path
from inducing.files.atomic import replacing
with replacing(Path(sys.argv[1])) as part:
    part.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL and path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2
    with replacing(path) as part:
        part.write_bytes(b"new")
        with replacing(path) as other:  # what is being written is left alone
            other.write_bytes(b"newer")
        assert part.exists()
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


def test_threads_may_save_one_path(tmp_path: Path, model: ig.Posterior) -> None:
    path, errors = tmp_path / "model", []

    def write() -> None:
        try:
            for _ in range(20):
                save(model, path)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and list(tmp_path.iterdir()) == [path]
    np.testing.assert_array_equal(ig.load(path).w, model.w)


def test_paths_that_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "0.parquet").write_text("a")
    os.symlink(tmp_path / "a.csv", tmp_path / "b.csv")
    os.link(tmp_path / "a.csv", tmp_path / "c.csv")
    for out, read in [
        ("a.csv", "a.csv"),
        ("./a.csv", "b.csv"),
        ("b.csv", "a.csv"),
        ("c.csv", "a.csv"),
        ("parts/0.parquet", "parts"),
        ("parts/0.parquet", "parts/*.parquet"),
    ]:
        with pytest.raises(ParameterError, match="would be written over"):
            require_apart(tmp_path / out, tmp_path / read)
    require_apart(tmp_path / "model", tmp_path / "a.csv", None, tmp_path / "parts")


def test_a_checkpoint_on_a_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = Checkpoint(tmp_path / "point", "print")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(CheckpointWarning, match="No space left on device"):
        saved.save(np.arange(3.0), 1.0, force=True)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    saved.save(np.arange(3.0), 1.0, force=True)  # the same point, once there is room
    np.testing.assert_array_equal(saved.load(np.zeros(3)), np.arange(3.0))


def test_a_full_disk_does_not_end_a_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "replacing", full)
    X = np.linspace(0.0, 6.0, 60)[:, None]
    model = ig.SparseGPRegressor(n_inducing=5, max_iter=3, checkpoint=tmp_path / "point", random_state=0)
    with pytest.warns(CheckpointWarning, match="the fit goes on"):
        model.fit(X, np.sin(X[:, 0]))
    assert abs(float(model.predict([[1.0]])[0]) - np.sin(1.0)) < 0.3


def test_a_zip_bomb_is_no_checkpoint(tmp_path: Path) -> None:
    import io
    import zipfile

    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<U200000000", "fortran_order": False, "shape": ()}
    )
    with zipfile.ZipFile(tmp_path / "point", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header.getvalue() + b"\0" * 50_000_000)
        archive.writestr("fingerprint.npy", header.getvalue())
    with pytest.raises(ModelFileError, match="cannot be read"):
        Checkpoint(tmp_path / "point", "print").load(np.zeros(3))


def test_a_checkpoint_is_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, otherwise = [1e6], np.zeros(2)
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    kept = Checkpoint(tmp_path / "c", "problem")
    assert kept.load(otherwise) is otherwise

    def saved(value: float, *, force: bool = False) -> float:
        """What the file has after a point with this value was offered."""
        kept.save(np.array([value, 0.0]), value, force=force)
        return float(kept.load(otherwise)[0])

    assert saved(1.0) == 1.0 and saved(2.0) == 1.0
    now[0] += checkpoints.INTERVAL - 0.01
    assert saved(3.0) == 1.0 and saved(3.0, force=True) == 3.0
    now[0] += checkpoints.INTERVAL
    assert saved(2.5) == 3.0 and saved(2.5, force=True) == 3.0  # no better than what is kept
    assert saved(4.0) == 4.0 and saved(5.0) == 4.0
    kept.save(np.array([9.0, 9.0]), 4.0, force=True)  # as good: the later one
    assert kept.load(otherwise)[1] == 9.0


@pytest.mark.parametrize(
    ("fingerprint", "otherwise"),
    [("another", np.zeros(2)), ("problem", np.zeros(3)), ("problem", np.zeros(2, dtype=np.float32))],
)
def test_a_checkpoint_of_another_problem(fingerprint: str, otherwise: np.ndarray, tmp_path: Path) -> None:
    Checkpoint(tmp_path / "c", "problem").save(np.ones(2), 1.0)
    with pytest.raises(ModelFileError, match="of another problem"):
        Checkpoint(tmp_path / "c", fingerprint).load(otherwise)
