"""Learning curves: jobs against dense formulas and limits, records that survive, claims that can fail, and
the quick pages.
"""

import json
import os

import numpy as np
import pytest
from numpy.testing import assert_allclose

import oracle
from experiments import curve_pages as pages
from experiments import reproduce
from experiments.curves import Bench, Job, Store, exact_job
from experiments.report import Report
from inducing.errors import UnknownNameError
from inducing.inference.selection import random_rows

with_data = pytest.mark.skipif(
    "INDUCING_DATA" not in os.environ, reason="real data: INDUCING_DATA is not set"
)
ROWS = 150


@pytest.fixture(scope="module")
def store():
    return Store()


def kernel(record):
    return oracle.bind(oracle.rbf, lengthscale=np.array(record["lengthscale"]), variance=record["variance"])


@with_data
@pytest.mark.parametrize("row", ["dtc", "fitc"])
def test_selected_jobs_are_the_dense_formulas(store, row):
    record = store.record(Job("kin40k", f"selected-{row}", 8, 1, start="random", rows=ROWS))
    bench, k = Bench.of("kin40k", ROWS), kernel(record)
    basis = oracle.jittered(oracle.points(k, random_rows(bench.X, 8, 1)), 1e-8)
    mean, cov = oracle.condition(
        oracle.joint_prior(row, k, basis, bench.X, bench.X_test), record["noise"], bench.y
    )
    evidence = oracle.log_evidence(row, k, basis, record["noise"], bench.X, bench.y)
    assert_allclose(record["log_evidence"], evidence, rtol=1e-6)
    assert_allclose(record["smse"], np.mean((bench.y_test - mean) ** 2) / np.mean(bench.y_test**2), rtol=1e-6)
    losses = 0.5 * (
        np.log(var := np.diag(cov) + record["noise"]) + (bench.y_test - mean) ** 2 / var - bench.y_test**2
    )
    assert_allclose(record["msll"], np.mean(losses), rtol=1e-6)


@with_data
def test_pitc_with_one_block_is_the_exact_gp(store):
    record = store.record(Job("kin40k", "pitc-basis", 8, 1, 2, blocks=1, rows=ROWS))
    bench, k = Bench.of("kin40k", ROWS), kernel(record)
    covariance = k(bench.X, bench.X) + record["noise"] * np.eye(ROWS)
    assert_allclose(record["log_evidence"], oracle.log_normal(bench.y, covariance), rtol=1e-6)
    mean = k(bench.X_test, bench.X) @ np.linalg.solve(covariance, bench.y)
    assert_allclose(
        record["pic smse"], np.mean((bench.y_test - mean) ** 2) / np.mean(bench.y_test**2), rtol=1e-6
    )
    assert record["smse"] > record["pic smse"]


@with_data
def test_held_hyperparameters_stay_and_widths_start_at_the_lengthscales(store):
    exact = store.record(exact_job("kin40k", 1, ROWS))
    assert exact["job"]["m"] == ROWS // 3
    for method in ("spgp-basis", "vsgp-basis"):
        record = store.record(Job("kin40k", method, 8, 1, 4, rows=ROWS))
        assert [record[name] for name in ("lengthscale", "variance", "noise")] == [
            exact[name] for name in ("lengthscale", "variance", "noise")
        ]
    assert record["deviation"] > 0
    still = store.record(Job("kin40k", "vsgp-full", 8, 1, 0, rows=ROWS))
    assert_allclose(still["relative"], 0.0, atol=1e-14)
    assert (still["noise"], still["variance"], still["lengthscale"]) == (
        pytest.approx(0.1),
        1.0,
        pytest.approx([8**0.5] * 8),
    )


@with_data
def test_movable_share_of_none_is_the_selection(store):
    held = store.record(Job("kin40k", "spgp-basis", 8, 1, 4, "random", movable=0.0, rows=ROWS))
    selected = store.record(Job("kin40k", "selected-fitc", 8, 1, start="random", rows=ROWS))
    some = store.record(Job("kin40k", "spgp-basis", 8, 1, 4, "random", movable=0.5, rows=ROWS))
    assert held["log_evidence"] == pytest.approx(selected["log_evidence"], rel=1e-9)
    assert some["log_evidence"] > held["log_evidence"]


def test_records_are_read_back_and_not_computed_again(tmp_path):
    path, job = tmp_path / "folder" / "curves.jsonl", Job("nowhere", "spgp-full", 5, 3, 10)
    first = Store(path)
    first.add(record(job, smse=0.25))
    assert Store(path).all([job]) == [record(job, smse=0.25)]
    with pytest.raises(UnknownNameError, match="nowhere"):  # this one would have to be computed
        Store(path).all([Job("nowhere", "spgp-full", 6, 3, 10)])


def record(job, **values):
    return {"job": json.loads(job.key), "device": "NumPy", "seconds": 1.0} | values


def joint_and_held(error, evidence, noise):
    """Records at m = 5 and 10; joint learning's values are given for m = 10, the held ones are 0.1, 0 and
    0.01.
    """
    values = {"smse": 0.1, "log_evidence": 0.0, "noise": 0.01, "msll": -1.0}
    records = [
        record(Job("d", method, m, seed), **values)
        for method in ("held", "joint")
        for m in (5, 10)
        for seed in (0, 1)
    ]
    for late in records[-2:]:
        late |= {"smse": error, "log_evidence": evidence, "noise": noise}
    return records


def test_over_fitting_needs_error_evidence_and_noise():
    def holds(*values):
        report = Report("X", "", "", quick=False)
        pages.over_fitting(report, joint_and_held(*values), {"joint": "held"}, 0.01)
        return report.claims[0].holds

    assert holds(0.2, 5.0, 0.001)
    assert not holds(0.09, 5.0, 0.001) and not holds(0.2, -5.0, 0.001) and not holds(0.2, 5.0, 0.02)


def test_series_and_ratios_are_by_size():
    records = [record(Job("d", "a", m, seed), smse=m + seed) for m in (20, 10) for seed in (0, 1, 2)]
    records += [record(Job("d", "b", 10), smse=2.0)]
    found = pages.series(records, method="a")
    assert list(found) == [10, 20] and found[10] == [10, 11, 12]
    assert pages.ratios(found, pages.series(records, method="b")) == {10: 5.5}
    assert pages.ratios(found, found, range(15)) == {10: 1.0}
    assert pages.span([0.5, 0.25]) == "0.25 to 0.50" and pages.span([0.5]) == "0.50"
    report = Report("X", "", "", quick=False)
    for limit in (1.0, 0.4):
        pages.below(report, "", "", [0.5, 0.25], limit)
    assert [claim.holds for claim in report.claims] == [True, False]


def test_the_four_inputs_that_matter():
    lengths = [9.0] * 32
    for i in (3, 4, 14, 15):
        lengths[i] = 1.0
    assert pages.four_found({"lengthscale": lengths})
    assert pages.longest_relevant({"lengthscale": lengths}) == 1.0
    lengths[15] = 10.0
    assert not pages.four_found({"lengthscale": lengths})
    assert pages.longest_relevant({"lengthscale": lengths}) == 10.0


@with_data
@pytest.mark.parametrize("name", ["W2", "W3", "W4", "S3", "S4", "S5", "Q4"])
def test_quick_pages(name, tmp_path):
    report = reproduce(name, quick=True, folder=tmp_path)
    page = (tmp_path / name / "README.md").read_text(encoding="utf-8")
    numbers = json.loads((tmp_path / name / "values.json").read_text(encoding="utf-8"))
    assert len(report.claims) >= 3 and report.tables and report.settings
    assert all(
        f"{picture}.png" in page and (tmp_path / name / f"{picture}.png").stat().st_size > 10_000
        for picture in report.pictures
    )
    assert all(np.isfinite(r["smse"]) and np.isfinite(r["log_evidence"]) for r in numbers["records"])
