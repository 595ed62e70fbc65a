"""Streams that lose nothing: half rows, other scripts, wrong bytes, and files that are not theirs."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import inducing as ig
from inducing.errors import ColumnError, ParameterError
from inducing.streams.lines import BadRow, Format
from inducing.streams.session import Session

TABLE = pd.DataFrame(np.random.default_rng(5).uniform(-2, 2, (60, 2)), columns=["a", "y"]).round(6)


def session(out: Path) -> Session:
    return Session.begun(out, "y", ig.OnlineGPRegressor(n_inducing=8, warmup=20, max_iter=2, random_state=0))


def rows_of(table: pd.DataFrame) -> str:
    return table.to_csv(index=False)


def test_half_a_row_at_the_end_is_left_until_it_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path, out = tmp_path / "live.csv", tmp_path / "model"
    text = rows_of(TABLE)
    path.write_text(text[: text.rindex(",") + 4])  # the last number lacks its last digits
    first = session(out)
    first.run(str(path))
    assert first.read == 59 and "has no end and may be half a row" in capsys.readouterr().err
    path.write_text(text)
    again = Session.resumed(out)
    again.run(str(path))
    assert again.read == 1 and again.model.n_rows_ == 60
    whole = session(tmp_path / "other")
    whole.run(str(path))
    np.testing.assert_array_equal(again.model.posterior_.w, whole.model.posterior_.w)


def test_rows_that_changed_before_the_place_are_not_read_from_the_middle_of_a_line(tmp_path: Path) -> None:
    """One digit more in a row that was read: the place would be one byte too early, in the row before."""
    path, out = tmp_path / "live.csv", tmp_path / "model"
    many = pd.DataFrame(np.random.default_rng(6).uniform(100, 999, (300, 2)), columns=["a", "y"]).round(4)
    path.write_text(rows_of(many[:299]))
    session(out).run(str(path))
    lines = rows_of(many).splitlines(keepends=True)
    lines[290] = "1" + lines[290]  # beyond the bytes that tell one file from another
    for changed in ("".join(lines), "".join(lines[:285]), "".join(lines[:290] + lines[291:])):
        path.write_text(changed)
        with pytest.raises(ParameterError, match="has changed before row 300, where its model stopped"):
            Session.resumed(out).run(str(path))
    path.write_text("".join(lines))
    again = Session.resumed(out)
    again.run(str(path), skip=299)
    assert again.read == 1 and again.model.n_rows_ == 300 and again.place.rows == 300


def test_rows_to_skip_are_counted_from_the_beginning_of_a_file_that_was_read(tmp_path: Path) -> None:
    path, out = tmp_path / "a.csv", tmp_path / "model"
    path.write_text(rows_of(TABLE))
    session(out).run(str(path))
    again = Session.resumed(out)
    again.run(str(path), skip=45)
    assert again.read == 15 and again.model.n_rows_ == 75
    assert again.place.rows == 60 and again.place.offset == path.stat().st_size


def test_a_file_that_is_cut_while_it_is_followed_is_another_one(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path, out = tmp_path / "live.csv", tmp_path / "model"
    path.write_text(rows_of(TABLE))
    first = session(out)

    def cut() -> None:
        end = time.monotonic() + 20
        while first.read < 60 and time.monotonic() < end:
            time.sleep(0.01)
        os.truncate(path, 10)
        while thread.is_alive() and time.monotonic() < end and not over:
            time.sleep(0.01)
        if not over:
            os.kill(os.getpid(), signal.SIGTERM)

    over: list[bool] = []
    thread = threading.Thread(target=cut)
    thread.start()
    first.run(str(path), follow=True)
    over.append(True)
    thread.join()
    assert first.read == 60 and "the file was cut" in capsys.readouterr().err
    path.write_text(rows_of(TABLE[::-1]))
    again = Session.resumed(out)
    again.run(str(path))
    assert again.read == 60 and again.model.n_rows_ == 120


def test_a_whole_object_needs_no_end_of_line(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    text = TABLE.to_json(orient="records", lines=True).rstrip("\n")
    path.write_text(text)
    first = session(tmp_path / "model")
    first.run(str(path))
    assert first.read == 60
    path.write_text(text[:-3])
    second = session(tmp_path / "other")
    second.run(str(path))
    assert second.read == 59


@pytest.mark.parametrize(
    "value", ["1_000", "١٢", "１２", "१", "1_0.5", "0x10", "1e", "--1", "nan", "inf", "1e999"]
)
def test_numbers_that_are_none(value: str) -> None:
    csv = Format(",", "y", ("a",), False, 2, (0, 1))
    json = Format(None, "y", ("a",), False)
    for read, line in ((csv, f"{value},1\n"), (csv, f"1,{value}\n"), (json, f'{{"a": "{value}", "y": 1}}\n')):
        with pytest.raises(BadRow):
            read.read(line.encode())
    assert csv.read(b" 1e3 , -.5\n") == ([1000.0], -0.5)
    named = Format(",", "y", ("a_é",), False, 3, (0, 2))
    assert named.read("1,snake_case é,2\n".encode()) == ([1.0], 2.0)  # a column that is not used


def test_bytes_that_are_no_utf8_are_refused_not_merged() -> None:
    labels = Format(",", "y", ("a",), True, 2, (0, 1))
    assert labels.read("1,café\n".encode()) == ([1.0], "café")
    for word in ("café", "cafè"):
        with pytest.raises(BadRow, match="no UTF-8"):
            labels.read(f"1,{word}\n".encode("latin-1"))
    with pytest.raises(ColumnError, match="no UTF-8"):
        Format.of("a,caf\xe9\n".encode("latin-1"), "csv", "a", (), None, False)


def test_predictions_never_overwrite_what_is_read(tmp_path: Path) -> None:
    path, out = tmp_path / "a.csv", tmp_path / "model"
    path.write_text(rows_of(TABLE))
    os.symlink(path, tmp_path / "link.csv")
    os.link(path, tmp_path / "hard.csv")
    os.symlink(tmp_path / "nothing yet", tmp_path / "other")
    for name in ("a.csv", "link.csv", "hard.csv"):
        with pytest.raises(ParameterError, match="would be written over"):
            session(out).run(str(path), predictions=str(tmp_path / name))
        with pytest.raises(ParameterError, match="would be written over"):
            session(tmp_path / name).run(str(path))
    with pytest.raises(ParameterError, match="would be written over"):
        session(tmp_path / "other").run(str(path), predictions=str(tmp_path / "nothing yet"))
    assert path.read_text() == rows_of(TABLE)


def test_predictions_are_never_cut_where_they_are_not_this_streams(tmp_path: Path) -> None:
    path, out, said = tmp_path / "a.csv", tmp_path / "model", tmp_path / "said.csv"
    path.write_text(rows_of(TABLE[:40]))
    session(out).run(str(path), predictions=str(said))
    before = said.read_bytes()
    path.write_text(rows_of(TABLE))
    alien = tmp_path / "thesis.csv"
    alien.write_bytes(b"x" * 100_000)
    with pytest.raises(ParameterError, match="not this stream's"):
        session(tmp_path / "new").run(str(path), predictions=str(alien))
    with pytest.raises(ParameterError, match="not this stream's"):
        Session.resumed(out).run(str(path), predictions=str(alien))
    assert alien.stat().st_size == 100_000
    for changed in (before[:-10], before.replace(b"1", b"2")):
        said.write_bytes(changed)
        with pytest.raises(ParameterError, match="not this stream's"):
            Session.resumed(out).run(str(path), predictions=str(said))
        assert said.read_bytes() == changed
    said.write_bytes(before + b"41,0.1,0.2,0.3\n")  # of a row that the model did not get to save
    Session.resumed(out).run(str(path), predictions=str(said))
    assert said.read_bytes().startswith(before)
    np.testing.assert_array_equal(pd.read_csv(said)["row"], np.arange(1, 61))


def test_predictions_are_on_the_disk_before_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, said, synced = tmp_path / "a.csv", tmp_path / "said.csv", []
    path.write_text(rows_of(TABLE))
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd))[1]
    )
    session(tmp_path / "model").run(str(path), predictions=str(said))
    assert synced[0] == str(said) and synced[-1] == str(tmp_path)  # the folder last, after the rename
