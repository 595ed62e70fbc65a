"""The demo page of docs/ in a headless browser, against `condition`: every number it shows, its handles."""

from pathlib import Path

import numpy as np
import pytest
from test_page import asked, needs_browser

import inducing as ig

DEMO = Path(__file__).parents[2] / "docs" / "demo.html"


@needs_browser
def test_its_rows_of_the_table_are_those_of_the_package(tmp_path):
    ask = (
        "(() => { const d = window.demo, at = [-0.5, 1, 3.2, 6.5]; d.arrange([0.4, 1.3, 1.9, 2.6, 4.0, 5.2]);"
        " const told = (m) => ({ evidence: m.evidence, at: at.map(m.predict) });"
        " return { X: d.X, y: d.y, at, model: d.model, exact: told(d.exact()),"
        " rows: Object.fromEntries(['sor', 'dtc', 'vfe', 'fitc'].map((r) => [r, told(d.condition(r))])) };"
        " })()"
    )
    found = asked(DEMO, tmp_path, ask)
    X, y, model = np.array(found["X"])[:, None], np.array(found["y"]), found["model"]
    kernel = ig.kernels.RBF(model["lengthscale"], model["variance"])
    basis, queries = ig.bases.Points(np.array(model["Z"])[:, None]), np.array(found["at"])[:, None]
    for row, theirs in {**found["rows"], "exact": found["exact"]}.items():
        post = ig.condition(kernel, None if row == "exact" else basis, row, model["noise"], X, y)
        mean, variance = post.predict(queries)
        assert theirs["evidence"] == pytest.approx(post.log_evidence, rel=1e-9)
        np.testing.assert_allclose([p["mean"] for p in theirs["at"]], mean, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose([p["variance"] for p in theirs["at"]], variance, rtol=1e-7, atol=1e-9)


@needs_browser
@pytest.mark.parametrize("width", [1100, 375])
def test_inputs_are_dragged_and_moved_by_keys(tmp_path, width):
    ask = (
        "(() => { const d = window.demo; d.now(); const c = document.querySelector('canvas');"
        " const r = c.getBoundingClientRect(), Z = d.model.Z.slice();"
        " c.setPointerCapture = () => {};"
        " const go = (kind, f) => c.dispatchEvent(new PointerEvent(kind,"
        " { clientX: r.left + f * r.width, clientY: r.top + 5, buttons: 1, pointerId: 1 }));"
        " go('pointerdown', (Z[0] + 1) / 8); go('pointermove', 0.05); go('pointerup', 0.05);"
        " const dragged = d.model.Z.slice(), s = document.querySelectorAll('#places input')[3];"
        " s.value = 6; s.dispatchEvent(new Event('input')); const keyed = d.model.Z.slice();"
        " const bound = () => d.condition('vfe').evidence, before = bound(); d.climb(1);"
        " return { Z, dragged, keyed, before, after: bound(), exact: d.exact().evidence,"
        " wide: document.documentElement.scrollWidth - window.innerWidth }; })()"
    )
    found = asked(DEMO, tmp_path, ask, width=width)
    assert found["dragged"][0] == pytest.approx(-0.6, abs=0.05) and found["dragged"][1:] == found["Z"][1:]
    assert found["keyed"][3] == pytest.approx(6.0, abs=0.03)
    assert found["before"] < found["after"] <= found["exact"] and found["wide"] <= 1
