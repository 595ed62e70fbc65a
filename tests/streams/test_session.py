"""A session from Python: what `inducing stream` does, without the command line; and the line it shows."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import inducing as ig
from inducing import errors, progress
from inducing.streams.session import Session

RNG = np.random.default_rng(3)
TABLE = pd.DataFrame(RNG.uniform(-2, 2, (120, 2)), columns=["a", "b"]).round(6)
TABLE["y"] = (np.sin(TABLE["a"]) * TABLE["b"]).round(6)


def model():
    return ig.OnlineGPRegressor(n_inducing=15, warmup=40, max_iter=5, random_state=0)


def test_a_session_reads_resumes_and_scores(tmp_path):
    path, out = tmp_path / "rows.csv", tmp_path / "model"
    TABLE[:80].to_csv(path, index=False)
    first = Session.begun(out, "y", model())
    first.run(str(path), predictions=str(tmp_path / "said.csv"))
    assert first.read == 80 and first.scores.rows == 40 and first.place.rows == 80
    TABLE.to_csv(path, index=False)  # the file has grown
    again = Session.resumed(out)
    again.run(str(path), predictions=str(tmp_path / "said.csv"))
    assert again.read == 40 and again.scores.rows == 80 and again.model.n_rows_ == 120
    plain = model()
    plain.partial_fit(TABLE[["a", "b"]][:40].to_numpy(), TABLE["y"][:40])
    forecast = plain.predict_then_fit(TABLE[["a", "b"]][40:].to_numpy(), TABLE["y"][40:])
    said = pd.read_csv(tmp_path / "said.csv")
    assert_array_equal(said["row"], np.arange(1, 121))
    assert_allclose(said["y_mean"][40:], forecast.mean, rtol=1e-7)
    assert_allclose(again.scores.values()["NLPD"], -np.mean(forecast.log_density), rtol=1e-7)


def test_rows_of_labels_wait_for_the_warm_up_and_no_longer(tmp_path, monkeypatch):
    """Then predictions and saves come on the way, not at the end of a stream that may have none."""
    path, seen = tmp_path / "rows.csv", []
    TABLE.assign(y=np.where(TABLE["y"] > 0, "a", "b")).to_csv(path, index=False)
    classifier = ig.SparseGPClassifier(method="online", n_inducing=10, warmup=40, max_iter=2, random_state=0)
    current = Session.begun(tmp_path / "model", "y", classifier)
    monkeypatch.setattr("inducing.streams.session.BATCH", 10)
    read = Session._read
    monkeypatch.setattr(
        Session, "_read", lambda self, rows: (seen.append((self.place.rows, len(rows))), read(self, rows))[1]
    )
    current.run(str(path))
    assert seen == [(40, 40), *((row, 10) for row in range(50, 121, 10))]


def test_a_warm_up_ends_on_the_row_it_should(tmp_path, monkeypatch):
    path, seen = tmp_path / "rows.csv", []
    TABLE.to_csv(path, index=False)
    current = Session.begun(tmp_path / "model", "y", model())
    assert "0 rows, 0 refused" in current._status() and "0 basis functions" in current._status()
    monkeypatch.setattr("inducing.streams.session.BATCH", 30)
    read = Session._read
    monkeypatch.setattr(Session, "_read", lambda self, rows: (seen.append(len(rows)), read(self, rows))[1])
    current.run(str(path))
    assert seen == [30, 10, 20, 30, 30]  # the warm-up of 40 rows ends inside the second batch


def test_a_strict_session_stops_before_a_bad_row(tmp_path, capsys):
    lines = TABLE.to_csv(index=False).splitlines()
    lines[61] = "1,nothing,2"
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    session = Session.begun(tmp_path / "model", "y", model())
    session.strict = True
    session.run(str(tmp_path / "rows.csv"))
    assert session.stopped_at == 61 and session.read == 60 and session.place.rows == 60
    assert "row 61 refused: 'b' is 'nothing', which is no number" in capsys.readouterr().err


def test_a_model_of_no_stream_is_refused(tmp_path):
    model().fit(TABLE[["a", "b"]], TABLE["y"]).save(tmp_path / "model")
    with pytest.raises(errors.ModelFileError, match="no model of a stream"):
        Session.resumed(tmp_path / "model")


def test_a_status_waits_is_written_over_and_makes_way_for_notes(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    status = progress.Status()
    shown = [1.0, 2.5, 2.7, 3.2]  # patience ends after two seconds; half a second between two lines
    for seconds in shown:
        now[0] = 100.0 + seconds
        status.show(lambda seconds=seconds: f"at {seconds}")
    status.note("a note")
    status.end()
    assert capsys.readouterr().err == "\rat 2.5\x1b[K\rat 3.2\x1b[K\na note\n"
    assert status.seconds == pytest.approx(shown[-1])
