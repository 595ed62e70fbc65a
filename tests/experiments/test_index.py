"""The index has no hole, reads pages as they are written, and verdicts follow from standard errors."""

from pathlib import Path

import numpy as np
import pytest

from experiments import EXPERIMENTS
from experiments.index import DOCUMENTS, PLACES, claims_of, counted, whys_of, write_index, write_seeds
from experiments.report import Report, at_most

RESULTS = Path(__file__).parents[2] / "experiments" / "results"


def filled(seed: int = 0) -> Report:
    report = Report("W1", "a title", "000 Fig 1", True, seed)
    report.claim("a | b", "paper", "found", True)
    report.claim("second", "paper", "found", seed == 0)
    report.claim("third", "paper", "found")
    return report


def test_every_experiment_has_a_place_and_every_place_an_experiment() -> None:
    named = {name for line in PLACES.strip().split("\n") for name in line.split(" | ")[3].split()}
    assert named == set(EXPERIMENTS)
    assert {line[:3] for line in PLACES.strip().split("\n")} >= set(DOCUMENTS)


def test_every_page_is_there() -> None:
    missing = [name for name in EXPERIMENTS if not claims_of(RESULTS / name / "README.md")]
    assert missing == []


def test_the_index_is_that_of_the_pages(tmp_path: Path) -> None:
    for name in EXPERIMENTS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text((RESULTS / name / "README.md").read_text())
    if (RESULTS / "SEEDS.md").exists():
        (tmp_path / "SEEDS.md").touch()
    assert write_index(tmp_path).read_text() == (RESULTS / "README.md").read_text()


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_every_no_has_a_reason_that_was_tested(name: str) -> None:
    page = RESULTS / name / "README.md"
    assert [text for text, holds in claims_of(page) if holds is False and text not in whys_of(page)] == []


def test_reasons_are_read_back_and_only_for_what_does_not_hold(tmp_path: Path) -> None:
    report = filled(1)
    for text, shown in (("a | b", True), ("second", False), ("third", None)):
        report.why(text, f"reason of {text}", "found", shown)
    report.write(tmp_path / "W1")
    whys = whys_of(tmp_path / "W1" / "README.md")
    assert whys == {"second": ("reason of second", "**no**"), "third": ("reason of third", "unclear")}
    assert "| second | reason of second | **no** |" in write_index(tmp_path).read_text()


def test_finished_parts_are_kept_and_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "parts.jsonl"
    monkeypatch.setenv("EXPERIMENTS_PARTS", str(kept))
    jobs = [(2, 0.5), (3, 0.5)]
    first = filled()
    assert first.map(power, jobs[:1]) == [[2.0, 2**0.5]] and not first.stored
    lines = kept.read_text().replace("1.414", "9.414")  # a mark: what is kept is what is used
    kept.write_text(lines)
    again = filled()
    two, three, last = again.map(power, [*jobs, jobs[0]])
    assert two == last == [2.0, pytest.approx(8.0 + 2**0.5)] and three == [3.0, 3**0.5]
    assert again.stored and len(kept.read_text().splitlines()) == 2


def power(base: float, exponent: float) -> np.ndarray:
    return np.array([base, base**exponent])


def test_claims_are_read_back(tmp_path: Path) -> None:
    report = filled()
    report.write(tmp_path / "W1")
    claims = claims_of(tmp_path / "W1" / "README.md")
    assert [holds for _, holds in claims] == [True, True, None]
    assert counted(claims) == "2 yes, 1 open"
    filled(1).write(tmp_path / "seed-1" / "W1")
    text = write_seeds(tmp_path, tmp_path).read_text()
    assert "2 of 3 are the same" in text and "| W1 | second | yes | no |" in text
    assert claims[0][0] == "a | b" and "| W1 | a \\| b | yes | yes |" in text


def test_a_claim_that_a_seed_does_not_make_shifts_no_other(tmp_path: Path) -> None:
    filled().write(tmp_path / "W1")
    other = filled(1)
    del other.claims[0]
    other.write(tmp_path / "seed-1" / "W1")
    text = write_seeds(tmp_path, tmp_path).read_text()
    assert "| W1 | a \\| b | yes | – |" in text and "| W1 | second | yes | no |" in text


def test_verdicts_of_pages_that_were_not_run_again_are_kept(tmp_path: Path) -> None:
    for folder, name in (("first", "W1"), ("again", "S1")):
        for seed, place in ((0, tmp_path / folder), (1, tmp_path / folder / "seed-1")):
            filled(seed).write(place / name)
        text = write_seeds(tmp_path / folder, tmp_path).read_text()
    assert "4 of 6 are the same" in text
    assert all(f"| {name} | a \\| b | yes | yes |" in text for name in ("W1", "S1"))
    assert "W1" not in text.partition("Not run so: ")[2].partition(".")[0].split(", ")


@pytest.mark.parametrize(("mean", "verdict"), [(0.9, True), (1.1, None), (2.0, False)])
def test_verdicts_beside_a_papers_number(mean: float, verdict: bool | None) -> None:
    values = mean + np.array([-0.2, 0.2, -0.2, 0.2])  # standard error 0.115
    assert at_most(values, 1.0) is verdict
