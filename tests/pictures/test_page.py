"""The page about a model, in a headless browser: its numbers, its safety, its size."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import inducing as ig

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
)
OPTIONS += " --disable-component-update --disable-quic --virtual-time-budget=5000"
needs_browser = pytest.mark.skipif(BROWSER is None, reason="install chromium to look at pages")
EARLY = "<script>window.failures = []; window.onerror = (m) => { window.failures.push(String(m)); };</script>"

LEVELS = ig.kernels.Levels(ig.kernels.Matern32([9.0, 9.0, 9.0, 1.0, 1.2]), [[0, 103.0], [0, 106.0]])
LEVELS += ig.kernels.Linear(0.1)
WARPED = ig.kernels.Warped(ig.kernels.Matern32([9.0, 1.0, 9.0], columns=[0, 3, 2]), [[1, 50.0, 20.0]])

WITHOUT_GREEN = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
)
TO_CONES = np.array(
    [[0.41222, 0.53633, 0.05145], [0.2119, 0.6807, 0.1074], [0.0883, 0.28172, 0.62998]]
)  # and Oklab of their cube roots [Ottosson 2020]
TO_OKLAB = np.array([[0.21045, 0.79362, -0.00407], [1.978, -2.42859, 0.45059], [0.0259, 0.78277, -0.80868]])


def asked(page, tmp_path, expression, width=1100):
    """The value of a JavaScript expression in the page, and what went wrong in it."""
    text = page.read_text(encoding="utf-8").replace("<head>", f"<head>{EARLY}", 1)
    ask = (
        f"<script>{{ const value = {expression};"
        "const result = JSON.stringify({ value, failures: window.failures,"
        " requests: performance.getEntriesByType('resource').length });"
        "document.body.replaceChildren(); const pre = document.createElement('pre');"
        "pre.textContent = result; document.body.append(pre); }</script>"
    )
    copy = tmp_path / "asked.html"
    copy.write_text(text.replace("</body>", f"{ask}</body>"), encoding="utf-8")
    command = [
        BROWSER,
        *OPTIONS.split(),
        f"--window-size={width},900",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    done = subprocess.run(
        [*command, "--dump-dom", copy.as_uri()], capture_output=True, text=True, timeout=120
    )
    found = re.search(r"<pre>(.*?)</pre>", done.stdout, flags=re.S)
    assert found, done.stdout[-500:]
    result = json.loads(html.unescape(found[1]))
    assert result["failures"] == [] and result["requests"] == 0
    return result["value"]


def _regressor(d=3, **options):
    X, y = ig.datasets.friedman1(120, rng=0)
    X = X[:, :d] * 10 + 100
    model = ig.SparseGPRegressor(n_inducing=15, max_iter=10, random_state=0, **options).fit(X, 5 * y)
    return model, X


@needs_browser
@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "matern32"},
        {"noise": "learned"},
        {"basis": "multiscale"},
        {"kernel": LEVELS},
        {"kernel": WARPED},
        {"kernel": ig.kernels.RationalQuadratic(1.5) + ig.kernels.Linear(0.3), "approximation": "exact"},
    ],
)
def test_numbers_are_those_of_the_model(tmp_path, options):
    model, X = _regressor(**options)
    size = model.explain(tmp_path / "page.html")
    assert size == (tmp_path / "page.html").stat().st_size < 700_000
    ask = f"{json.dumps(X[:10].tolist())}.map((x) => window.explain.observed(x))"
    values = asked(tmp_path / "page.html", tmp_path, ask)
    mean, std = model.predict(X[:10], return_std=True)
    np.testing.assert_allclose([v["mean"] for v in values], mean, rtol=1e-9)
    np.testing.assert_allclose([v["std"] for v in values], std, rtol=1e-9)


@needs_browser
@pytest.mark.parametrize("kernel", ["rbf", LEVELS])
def test_drawn_functions_are_those_of_the_posterior(tmp_path, kernel):
    model, X = _regressor(kernel=kernel)
    model.explain(tmp_path / "page.html")
    ask = f"{json.dumps(X[:4].tolist())}.map((x) => window.explain.drawn(x))"
    values = np.array(asked(tmp_path / "page.html", tmp_path, ask))  # (n, size)
    units = model.x_mean_, model.x_scale_, model.y_mean_, model.y_scale_
    paths = model.posterior_.paths(4, 0, features=128).in_units(*units)
    np.testing.assert_allclose(values.T, paths(X[:4]), rtol=1e-9)


def test_reasons_in_a_page_are_the_shapley_values(tmp_path):
    model, X = _regressor()
    model.explain(tmp_path / "page.html", X, model.predict(X))
    text = re.search(r'application/json">(.*?)</script>', (tmp_path / "page.html").read_text(), re.S)[1]
    told = json.loads(text)["reasons"]
    chosen = np.linspace(0, len(X) - 1, told["rows"]).astype(int)
    found = model.shapley(X[chosen])
    assert told["baseline"] == pytest.approx(float(found.baseline))
    for column in told["columns"]:
        np.testing.assert_allclose(column["shares"], found.values[:, column["input"]], rtol=1e-6, atol=1e-9)
        assert np.argmax(column["ranks"]) == np.argmax(X[chosen, column["input"]])


@needs_browser
def test_probabilities_of_classes(tmp_path):
    X, y = ig.datasets.friedman1(120, rng=0)
    for labels in (np.where(y > 14, "high", "low"), np.digitize(y, [11, 16])):
        model = ig.SparseGPClassifier(n_inducing=10, max_iter=5, random_state=0).fit(X[:, :3], labels)
        model.explain(tmp_path / "page.html")
        ask = f"{json.dumps(X[:5, :3].tolist())}.map((x) => window.explain.observed(x))"
        values = asked(tmp_path / "page.html", tmp_path, ask)
        ours = [[v[str(c)] for c in model.classes_] for v in values]
        np.testing.assert_allclose(ours, model.predict_proba(X[:5, :3]), rtol=1e-9)


@needs_browser
def test_hostile_names_many_columns_and_a_narrow_window(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    names = [
        "<script>alert(1)</script>",
        "</script><img src=x onerror=alert(1)>",
        *(f"c{i}" for i in range(198)),
    ]
    frame = pandas.DataFrame(rng.standard_normal((60, 200)), columns=names)
    model = ig.SparseGPRegressor(n_inducing=8, optimize=None, approximation="vfe").fit(
        frame, frame.iloc[:, 0]
    )
    model.metadata_ = {"target": "<b>y</b>"}
    model.explain(tmp_path / "page.html", frame, frame.iloc[:, 0])
    ask = (
        "({ names: [...document.querySelectorAll('.name')].map((e) => e.textContent),"
        " images: document.images.length, bold: document.querySelectorAll('#title b').length,"
        " wide: document.documentElement.scrollWidth - window.innerWidth })"
    )
    found = asked(tmp_path / "page.html", tmp_path, ask, width=375)
    assert names[0] in found["names"] and found["images"] == found["bold"] == 0
    assert found["wide"] <= 1


@needs_browser
def test_a_slider_moves_the_query(tmp_path):
    model, _ = _regressor()
    model.explain(tmp_path / "page.html")
    ask = (
        "(() => { const r = document.querySelector('input[type=range]');"
        " const before = window.explain.query.slice();"
        " r.value = r.max; r.dispatchEvent(new Event('input'));"
        " return [before, window.explain.query]; })()"
    )
    before, after = asked(tmp_path / "page.html", tmp_path, ask)
    assert sum(a != b for a, b in zip(before, after)) == 1


def test_one_row_and_one_input(tmp_path):
    model = ig.SparseGPRegressor(optimize=None, n_inducing=1).fit([[1.0]], [2.0])
    assert model.explain(tmp_path / "page.html") > 10_000


@needs_browser
@pytest.mark.parametrize(
    "kernel, options",
    [
        ("matern52", {"approximation": "fitc", "n_inducing": 500, "basis": "points"}),
        (ig.kernels.RBF(1.5) + ig.kernels.Linear(0.2), {"approximation": "exact"}),
    ],
)
def test_a_page_of_500_functions_makes_its_triangles(tmp_path, kernel, options, monkeypatch):
    """Half a square of doubles would not fit; of an exact process nothing of it is written."""
    import inducing.estimators.explaining as explaining

    monkeypatch.setattr(explaining, "_sobol", lambda model: None)
    X, y = ig.datasets.friedman1(700, rng=0)
    model = ig.SparseGPRegressor(kernel, optimize=None, random_state=0, **options).fit(X[:, :8], y)
    assert model.explain(tmp_path / "page.html") < 700_000
    assert "basis functions the page has" not in (tmp_path / "page.html").read_text()
    Q = X[:6, :8] + 0.05
    ask = f"{json.dumps(Q.tolist())}.map((x) => window.explain.observed(x))"
    values = asked(tmp_path / "page.html", tmp_path, ask)
    mean, std = model.predict(Q, return_std=True)
    np.testing.assert_allclose([v["mean"] for v in values], mean, rtol=1e-9)
    np.testing.assert_allclose([v["std"] for v in values], std, rtol=1e-9)


def test_an_exact_model_of_many_rows_is_pruned(tmp_path):
    X, y = ig.datasets.friedman1(900, rng=0)
    model = ig.SparseGPRegressor("matern52", approximation="exact", optimize=None).fit(X[:, :4], y)
    assert model.explain(tmp_path / "page.html") < 700_000
    said = re.search(
        r"Of 900 basis functions the page has the (\d+) that", (tmp_path / "page.html").read_text()
    )
    assert 450 <= int(said[1]) < 900


def test_many_classes_are_pruned_to_common_functions(tmp_path, monkeypatch):
    import inducing.estimators.explaining as explaining

    X, y = ig.datasets.friedman1(100, rng=0)  # 90 functions of 100 rows: near the span of each other
    labels = np.digitize(y, np.quantile(y, np.arange(1, 8) / 8))
    model = ig.SparseGPClassifier(n_inducing=90, optimize=None, random_state=0).fit(X[:, :3], labels)
    monkeypatch.setattr(explaining, "_sobol", lambda model: None)
    for limit in ("CHARACTERS", "NUMBERS_ON_A_PAGE"):
        monkeypatch.setattr(explaining, limit, getattr(explaining, limit) // 8)
    assert model.explain(tmp_path / "page.html") < 250_000
    assert "Of 90 basis functions the page has" in (tmp_path / "page.html").read_text()


@needs_browser
@pytest.mark.parametrize("options", [{"approximation": "exact"}, {"approximation": "fitc"}])
def test_dragging_is_smooth_and_the_keyboard_works(tmp_path, options, monkeypatch):
    """The least time of a frame while a query is dragged, of 500 functions: other processes take theirs."""
    import inducing.estimators.explaining as explaining

    X, y = ig.datasets.friedman1(500, rng=0)
    size = {"n_inducing": 500, "basis": "points"} if options["approximation"] == "fitc" else {}
    model = ig.SparseGPRegressor("rbf", optimize=None, **options, **size).fit(X[:, :4], y)
    monkeypatch.setattr(explaining, "_sobol", lambda model: None)
    assert model.explain(tmp_path / "page.html") < 700_000
    ask = (
        "(() => { const times = []; for (let k = 0; k < 30; k++) { window.explain.query[0] = k / 30;"
        " const began = performance.now(); window.explain.now(true); times.push(performance.now() - began); }"
        " const r = document.querySelector('input[type=range]'); r.focus();"
        " return { time: Math.min(...times), focused: document.activeElement === r }; })()"
    )
    found = asked(tmp_path / "page.html", tmp_path, ask)
    assert found["time"] < 33.0 and found["focused"]


def test_ten_colours_are_told_apart_in_both_themes():
    """By their distance in Oklab, where .02 is noticed, also without green cones [Machado et al. 2009]."""
    template = (Path(ig.__file__).parent / "pictures" / "explain.html").read_text(encoding="utf-8")
    colours = re.findall(r"--(?:blue|orange|green|c\d|panel): (#\w{6});", template)
    for theme in (colours[:11], colours[11:]):
        rgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in theme])
        linear = np.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
        light = np.sort(linear @ [0.2126, 0.7152, 0.0722]) + 0.05
        panel = linear[0] @ [0.2126, 0.7152, 0.0722] + 0.05
        contrasts = np.maximum(light, panel) / np.minimum(light, panel)
        assert np.sort(contrasts)[1] > 2.8  # of all but the panel itself
        for seen, least in ((np.eye(3), 0.14), (WITHOUT_GREEN, 0.1)):
            lab = np.cbrt(np.clip(linear[1:] @ seen.T, 0, None) @ TO_CONES.T) @ TO_OKLAB.T
            apart = np.linalg.norm(lab[:, None] - lab, axis=2)[np.triu_indices(10, 1)]
            assert apart.min() > least


def test_what_needs_its_rows_says_so(tmp_path):
    X, y = ig.datasets.friedman1(100, rng=0)
    model = ig.SparseGPRegressor(approximation="neighbours", optimize=None, n_inducing=5).fit(X, y)
    with pytest.raises(ig.errors.ParameterError, match="needs its data at every query"):
        model.explain(tmp_path / "page.html")


def test_kernels_of_categories_are_refused_by_name(tmp_path):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 4, 60), rng.standard_normal(60)])
    model = ig.SparseGPRegressor(categorical=[0], n_inducing=8, max_iter=2, random_state=0)
    with pytest.raises(
        ig.errors.ParameterError, match="can be compiled, exported or explained, not Category"
    ):
        model.fit(X, X.sum(axis=1)).explain(tmp_path / "page.html")
