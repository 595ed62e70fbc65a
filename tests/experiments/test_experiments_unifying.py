"""The unifying view's pages: claims that can fail, and the quick forms."""

import os
from typing import Any

import numpy as np
import pytest

from experiments import reproduce, sarcos, unifying_algebra, unifying_costs, unifying_view
from experiments.report import Report
from inducing.model.posterior import Marginals


def test_distance_is_the_kl_of_two_gaussians() -> None:
    exact, found = Marginals(np.array([1.0]), np.array([2.0])), Marginals(np.array([0.0]), np.array([4.0]))
    expected = 0.5 * (1.0 / 4.0 + 2.0 / 4.0 - 1.0 - np.log(2.0 / 4.0))
    assert unifying_view.distance(exact, found) == pytest.approx(expected)


def test_every_identity_holds_and_a_wrong_one_would_show() -> None:
    D = unifying_algebra.problem()
    rows = unifying_algebra.identities(D)
    assert len(rows) > 20
    for where, what, deviation, zero in rows:
        ok = deviation < unifying_algebra.SAME if zero else deviation > unifying_algebra.DIFFERENT
        assert ok, f"{where}: {what} is off by {deviation:.1e}"
    dtc, fitc = (unifying_algebra.answer(D.condition(name), D.Xs) for name in ("dtc", "fitc"))
    assert unifying_algebra.gap(dtc, D.posterior(D.prior("fitc"))) > 1e-3
    assert unifying_algebra.gap(fitc, D.posterior(D.prior("fitc"))) < 1e-8


@pytest.mark.parametrize(
    ("square", "cube", "shown"), [(1e-6, 1e-9, True), (1e-4, 1e-9, False), (1e-6, 0.0, False)]
)
def test_times_are_the_stated_order_and_one_below(square: float, cube: float, shown: bool) -> None:
    sizes = 500, 1000, 2000, 4000
    report = Report("Q2", "", "", False)
    report.claim("a start is O(nm²), that of the exact GP O(n³)", "", "", False)
    seconds = [square * n**2 + cube * n**3 for n in sizes]
    unifying_costs.why_flatter(report, {"exact GP, start, by n": (sizes, seconds, 2.5, 3.0)})
    assert [why.shown for why in report.whys] == [shown]


@pytest.mark.parametrize("name", ["Q1", "Q2"])
def test_quick_page(name: str, tmp_path: Any) -> None:
    report = reproduce(name, quick=True, folder=tmp_path)
    assert len(report.claims) >= 5
    assert all((tmp_path / name / f"{stem}.png").stat().st_size > 10_000 for stem in report.pictures)
    if name == "Q1":
        held = {claim.text: claim.holds for claim in report.claims}
        assert held["augmented DTC is superior to DTC in mean and variance"]
        assert held["Nyström's predictive variance can be negative"]
        assert not held["PITC, FITC, DTC, SoR: closest first"]  # shown as it is


@pytest.mark.skipif("INDUCING_DATA" not in os.environ, reason="real data: INDUCING_DATA is not set")
def test_sarcos_page(tmp_path: Any) -> None:
    data = sarcos.Data.load()
    assert data.X.shape == (3584, 21) and len(data.y_test) == 865
    report = reproduce("E2", quick=True, folder=tmp_path)
    assert report.claims[0].holds and report.claims[1].holds
