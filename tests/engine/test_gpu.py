"""The same functions on PyTorch and CuPy arrays: the CPU's numbers, and the kind of array that was passed.

CUDA parts are skipped without a device, CuPy's without CuPy, and everything without PyTorch; with PyTorch
alone the same code runs on its CPU tensors.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing.engine import neighbours, sums
from inducing.inference import neighbours as near
from inducing.inference.regression import gradient_of
from inducing.model.problem import make_problem
from inducing.model.table import TABLE
from inducing.numerics import arrays, linalg, workers

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
TorchDispatchMode = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore::DeprecationWarning")

ROWS = ("sor", "dtc", "vfe", "fitc", "fic", "pitc", "pep")
BASES = ("points", "multiscale")
N, M, D, NOISE = 600, 300, 3, 0.05  # M above the size where triangles are split into blocks

rng = np.random.default_rng(3)
X = rng.uniform(-3, 3, (N, D))
XS = rng.uniform(-3, 3, (50, D))
Y = np.sin(X @ [1.0, 0.7, 0.4]) + np.sqrt(NOISE) * rng.standard_normal(N)
Y2 = np.stack([Y, np.cos(X[:, 0])], axis=1)
LABELS = np.arange(N) // 40
LENGTHSCALE = np.array([0.6, 0.7, 0.5])
GRID = np.stack(np.meshgrid(*3 * [np.linspace(-2.7, 2.7, 7)]), axis=-1).reshape(-1, 3)  # well apart
Z = rng.permutation(GRID)[:M] + rng.uniform(-0.1, 0.1, (M, D))
KERNELS = {
    "RBF": ig.kernels.RBF(LENGTHSCALE, 1.3),
    "Matern32": ig.kernels.Matern32(0.6, 1.3),
    "sum": ig.kernels.RBF(LENGTHSCALE, 0.9) + ig.kernels.Matern52(1.1, 0.4, columns=(0, 2)),
    "product": ig.kernels.RBF(LENGTHSCALE, 0.9) * ig.kernels.RationalQuadratic(1.4, 0.8),
}


def to_cupy(a: np.ndarray) -> Any:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        pytest.skip("no CUDA device")
    return cupy.asarray(a)


def to_cuda(a: np.ndarray) -> Any:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.from_numpy(a).cuda()


KINDS: dict[str, Callable[[np.ndarray], Any]] = {"torch": torch.from_numpy, "cuda": to_cuda, "cupy": to_cupy}


@pytest.fixture(autouse=True)
def triangles_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linalg, "FEW_PRODUCTS", 0)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Callable[[np.ndarray], Any]:
    """A function that turns a NumPy array into the other kind."""
    convert = KINDS[request.param]
    convert(np.zeros(1))  # skips here
    return lambda a: convert(np.ascontiguousarray(a))


def basis(kind: str, m: int = M) -> Any:
    return (
        ig.bases.Points(Z[:m])
        if kind == "points"
        else ig.bases.Multiscale(Z[:m], LENGTHSCALE * (1.1 + 0.05 * Z[:m]))
    )


def options(name: str) -> dict[str, Any]:
    return {"blocks": LABELS} if name in ("pitc", "pic") else {}


def same(got: Any, expected: Any, like: Any, what: str = "") -> None:
    """Equal to 1e-8 of its size, and an array of the same kind, dtype and device as `like`."""
    assert type(got) is type(like), what
    assert got.dtype == like.dtype
    assert got.device == like.device
    assert_allclose(
        ig.backend.to_numpy(got),
        expected,
        rtol=0,
        atol=1e-8 * (1e-3 + np.max(np.abs(expected))),
        err_msg=what,
    )


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("name", [*ROWS, "exact"])
def test_evidence_and_gradient(name: str, kind: str, place: Any) -> None:
    arguments = KERNELS["RBF"], basis(kind), name, NOISE
    expected, slopes = ig.log_evidence_and_gradient(*arguments, X, Y, **options(name))
    A, y = place(X), place(Y)
    value, gradient = ig.log_evidence_and_gradient(*arguments, A, y, **options(name))
    assert_allclose(value, expected, rtol=1e-8)
    assert_allclose(ig.log_evidence(*arguments, A, y, **options(name)), expected, rtol=1e-8)
    assert set(gradient) == set(slopes)
    for key, slope in slopes.items():
        same(gradient[key], slope, A, key)


@pytest.mark.parametrize("name", ["vfe", "fitc"])
def test_what_has_no_room_is_made_again(name: str, place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = KERNELS["RBF"], basis("points"), name, NOISE
    expected, slopes = ig.log_evidence_and_gradient(*arguments, X, Y)
    monkeypatch.setattr(sums, "DEVICE_BYTES", 0)
    for room in (0, 4 * X.itemsize * N * M, 8 * X.itemsize * N * M):  # nothing, one matrix or two are kept
        monkeypatch.setattr(arrays, "device_room", lambda like, room=room: room)
        A = place(X)
        value, gradient = ig.log_evidence_and_gradient(*arguments, A, place(Y))
        assert_allclose(value, expected, rtol=1e-8)
        for key, slope in slopes.items():
            same(gradient[key], slope, A, key)


@pytest.mark.parametrize("name", ["vfe", "fitc"])
def test_a_wrong_belief_about_the_numbers_is_noticed(name: str, place: Any) -> None:
    """A row so far out that products would cancel; and a basis that has no factor without more jitter."""
    rows = X.copy()
    rows[0, 0] = 1e5
    arguments = KERNELS["RBF"], basis("points", 40), name, NOISE
    expected, slopes = ig.log_evidence_and_gradient(*arguments, rows, Y)
    A, y = place(rows), place(Y)
    value, gradient = ig.log_evidence_and_gradient(*arguments, A, y)
    assert_allclose(value, expected, rtol=1e-10)
    for key, slope in slopes.items():
        same(gradient[key], slope, A, key)
    double = ig.bases.Points(np.concatenate([Z[:40], Z[:40]]))
    with pytest.warns(ig.errors.JitterWarning):
        ig.log_evidence_and_gradient(KERNELS["RBF"], double, name, NOISE, A, y, jitter=0.0)


def test_a_device_is_asked_once() -> None:
    """For the value; whether factors and distances hold is asked with it."""

    class Questions(TorchDispatchMode):
        count = sorts = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += function is torch.ops.aten._local_scalar_dense.default
            self.sorts += function.overloadpacket is torch.ops.aten.sort
            return function(*args, **(kwargs or {}))

    P = make_problem(KERNELS["RBF"], basis("points"), TABLE["fitc"], NOISE, *map(torch.from_numpy, (X, Y)))
    with Questions() as questions:
        gradient_of(P)
    assert questions.count == 1
    assert questions.sorts == 1  # for the middle of the basis, which Kuu, Kfu and their gradients share


def test_an_evaluation_waits_for_the_device_twice() -> None:
    """For the value and for what was claimed; parameters on their way to the device wait for nothing."""
    P = make_problem(KERNELS["RBF"], basis("points"), TABLE["vfe"], NOISE, *map(to_cuda, (X, Y)))
    gradient_of(P)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            gradient_of(P)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert sum("called a synchronizing" in str(warning.message) for warning in found) == 2


@pytest.mark.parametrize("outputs", [1, 3, linalg.ADDED_COLUMNS + 1])
def test_a_product_with_a_triangle_and_what_is_added(outputs: int, place: Any) -> None:
    """A T + V B in one go where there is room beside A, and in two steps where there is not."""
    rng = np.random.default_rng(5)
    A, T = rng.standard_normal((40, M)), np.tril(rng.standard_normal((M, M)))
    V, B = rng.standard_normal((40, outputs)), rng.standard_normal((outputs, M))
    a = place(A)
    room = linalg.room_beside(a, outputs)
    if room is not None:
        room[:, :M] = a
        a = room[:, :M]
    got = linalg.times_lower_plus(a, place(T), room, place(V), place(B))
    assert_allclose(ig.backend.to_numpy(got), A @ T + V @ B, rtol=0, atol=1e-14 * M * np.abs(A).max() * 5)
    assert (room is None) == (outputs > linalg.ADDED_COLUMNS or type(a).__module__ != "torch")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["vfe", "fitc", "exact"])
def test_kernels_outputs_weights_and_mean(name: str, kernel: str, place: Any) -> None:
    rng = np.random.default_rng(100)
    weights, noise = rng.uniform(0.5, 2.0, N), rng.uniform(0.02, 0.1, N)
    mean = ig.means.Linear([0.3, -0.2, 0.1], 0.4)
    arguments = KERNELS[kernel], basis("points", 40), name
    expected, slopes = ig.log_evidence_and_gradient(*arguments, noise, X, Y2, mean=mean, weights=weights)
    A = place(X)
    value, gradient = ig.log_evidence_and_gradient(
        *arguments, place(noise), A, place(Y2), mean=mean, weights=place(weights)
    )
    assert_allclose(value, expected, rtol=1e-8)
    for key, slope in slopes.items():
        same(gradient[key], slope, A, key)


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("name", [*ROWS, "exact"])
def test_posterior(name: str, kind: str, place: Any) -> None:
    arguments = KERNELS["RBF"], basis(kind, 60), name, NOISE
    expected = ig.condition(*arguments, X, Y, **options(name))
    A = place(XS)
    post = ig.condition(*arguments, place(X), place(Y), **options(name))
    assert_allclose(post.log_evidence, expected.log_evidence, rtol=1e-8)
    for got, want in zip(post.predict(A), expected.predict(XS), strict=True):
        same(got, want, A)
    same(post.mean(A), expected.mean(XS), A)
    same(post.covariance(A), expected.covariance(XS), A)
    same(post.gradient(A), expected.gradient(XS), A)
    same(post.alpha, expected.alpha, A)
    assert isinstance(post.sample(A, size=2, rng=0), np.ndarray)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
def test_rows_along_neighbours(kernel: str, y: np.ndarray, place: Any) -> None:
    arguments = KERNELS[kernel], basis("points", 60), "neighbours"
    weights = np.random.default_rng(7).uniform(0.5, 2.0, N)
    expected, slopes = ig.log_evidence_and_gradient(*arguments, NOISE, X, y, neighbours=8, weights=weights)
    A = place(X)
    data = (NOISE, A, place(y))
    value, gradient = ig.log_evidence_and_gradient(*arguments, *data, neighbours=8, weights=place(weights))
    assert_allclose(value, expected, rtol=1e-8)
    for key, slope in slopes.items():
        same(gradient[key], slope, A, key)
    far = ig.condition(*arguments, *data, neighbours=8)
    own = ig.condition(*arguments, NOISE, X, y, neighbours=8)
    queries = place(XS)
    for got, want in zip(far.predict(queries), own.predict(XS), strict=True):
        same(got, want, A)
    same(far.mean(queries), own.mean(XS), A)
    same(far.covariance(queries), own.covariance(XS), A)
    same(far.gradient(queries), own.gradient(XS), A)


@pytest.mark.parametrize("kernel", ["Matern32", "product"])
@pytest.mark.parametrize("kept", [0, 1 << 32], ids=["factors again", "factors kept"])
def test_blocks_of_unequal_size_go_in_batches(
    kernel: str, kept: int, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = np.repeat(np.arange(7), [1, 3, 90, 60, 9, 80, 57])
    arguments = KERNELS[kernel], basis("points", 20), "neighbours"
    rng = np.random.default_rng(8)
    noise, weights = rng.uniform(0.02, 0.1, 300), rng.uniform(0.5, 2.0, 300)
    options = {"neighbours": 5, "blocks": labels, "weights": weights}
    monkeypatch.setattr(neighbours, "worth_compiling", lambda entries: True)  # small blocks there, too
    expected, slopes = ig.log_evidence_and_gradient(*arguments, noise, X[:300], Y[:300], **options)
    monkeypatch.setattr(sums, "BATCH_BYTES", kept)
    monkeypatch.setattr(neighbours, "DEVICE_BYTES", 2 * 8 * 90 * 180)  # two blocks of 90 rows at a time
    data = place(noise), place(X[:300]), place(Y[:300])
    value, gradient = ig.log_evidence_and_gradient(*arguments, *data, **options)
    assert_allclose(value, expected, rtol=1e-9)
    for key, slope in slopes.items():
        same(gradient[key], slope, data[1], key)
    own = ig.leave_one_out(*arguments, noise, X[:300], Y[:300], **options)
    far = ig.leave_one_out(*arguments, *data, **options)
    assert_allclose(far.log_density, own.log_density, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("lengthscale", [0.8, 1e-5], ids=["near", "far out"])
def test_several_gram_matrices_are_each_its_own(lengthscale: float) -> None:
    sets, bars = torch.from_numpy(X[:60].reshape(3, 20, D)), np.random.default_rng(9).normal(size=(3, 20, 20))
    for kind in (ig.kernels.RBF, ig.kernels.Matern12, ig.kernels.RationalQuadratic):
        kernel = kind(lengthscale * np.arange(1.0, 3.0), 1.3, columns=(0, 2))
        expected: dict[str, Any] = {}
        for i, matrix in enumerate(kernel.grams(sets)):
            assert_allclose(matrix, kernel(X[20 * i :][:20], X[20 * i :][:20]), rtol=1e-12, atol=1e-14)
            for name, slope in kernel.pullback(*2 * [X[20 * i :][:20]], bars[i].copy())[0].items():
                expected[name] = expected.get(name, 0.0) + slope
        found = kernel.grams_pullback(sets, torch.from_numpy(bars.copy()))
        assert set(found) == set(expected)
        for name, slope in expected.items():
            assert_allclose(found[name], slope, rtol=1e-10, atol=1e-12, err_msg=name)


def test_a_likelihood_along_neighbours(place: Any) -> None:
    arguments = KERNELS["Matern32"], basis("points", 40), "neighbours", ig.likelihoods.Probit(1.0)
    signs = np.where(Y > 0, 1.0, -1.0)
    own = ig.condition(*arguments, X, signs, neighbours=8)
    far = ig.condition(*arguments, place(X), place(signs), neighbours=8)
    assert_allclose(far.log_evidence, own.log_evidence, rtol=1e-8)
    A = place(XS)
    for got, want in zip(far.predict(A), own.predict(XS), strict=True):
        same(got, want, A)


def test_pic(place: Any) -> None:
    arguments = KERNELS["RBF"], basis("points", 60), "pic", NOISE
    queries = np.arange(50) // 4
    want = ig.condition(*arguments, X, Y, blocks=LABELS).predict(XS, blocks=queries)
    A = place(XS)
    got = ig.condition(*arguments, place(X), place(Y), blocks=LABELS).predict(A, blocks=queries)
    for a, b in zip(got, want, strict=True):
        same(a, b, A)


@pytest.mark.filterwarnings("ignore::inducing.errors.NegativeVarianceWarning")
@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("name", ["bcm", "rbcm", "gpoe", "poe", "nystrom", "asor"])
def test_beside_the_table(name: str, y: np.ndarray, place: Any) -> None:
    arguments = KERNELS["RBF"], basis("points", 30), name, NOISE
    expected = ig.condition(*arguments, X[:200], y[:200], blocks=LABELS[:200])
    found = ig.condition(*arguments, place(X[:200]), place(y[:200]), blocks=LABELS[:200])
    A = place(XS[:20])
    for got, want in zip(found.predict(A), expected.predict(XS[:20]), strict=True):
        same(got, want, A)
    if name in ("bcm", "nystrom", "asor"):
        same(found.covariance(A), expected.covariance(XS[:20]), A)
    if name == "bcm":
        both = (c.on(basis("points", 30).on(a)).predict(a) for c, a in ((found, A), (expected, XS[:20])))
        for got, want in zip(*both, strict=True):
            same(got, want, A)


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("name", ["dtc", "fitc", "pitc", "pep"])
def test_augmented_rows(name: str, kind: str, place: Any) -> None:
    arguments, more = (
        (KERNELS["RBF"], basis(kind, 30), name, NOISE),
        {k: v[:200] for k, v in options(name).items()},
    )
    expected = ig.augmentation.condition(*arguments, X[:200], Y[:200], **more)
    found = ig.augmentation.condition(*arguments, place(X[:200]), place(Y[:200]), **more)
    A = place(XS[:6])
    for got, want in zip(found.predict(A), expected.predict(XS[:6]), strict=True):
        same(got, want, A)
    same(found.covariance(A), expected.covariance(XS[:6]), A)


def test_queries_along_neighbours_go_many_at_a_time(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device each query has a small factor of its own, some hundred queries a step: NumPy's numbers."""
    steps, whole = [], near.NeighboursPredictor._given_each

    def counted(self: Any, X: Any, queries: np.ndarray, numbers: np.ndarray) -> Any:
        steps.append(len(queries))
        return whole(self, X, queries, numbers)

    monkeypatch.setattr(near.NeighboursPredictor, "_given_each", counted)
    arguments = KERNELS["Matern32"], basis("points", 20), "neighbours", NOISE
    own: Any = ig.condition(*arguments, X, Y2, neighbours=8)
    far: Any = ig.condition(*arguments, place(X), place(Y2), neighbours=8)
    queries = np.concatenate([XS, X[:50]])  # training rows, too
    most = 2 * 8 * 9 * (9 + 20 + D) * 40  # forty queries at a time
    monkeypatch.setattr(near, "DEVICE_BYTES", most)
    mean, variance = (ig.backend.to_numpy(a) for a in far.predict(place(queries)))
    assert max(steps) == 40 and sum(steps) == len(queries)
    assert_allclose(mean, own.predict(queries).mean, rtol=1e-9, atol=1e-9)
    assert_allclose(variance, own.predict(queries).variance, rtol=1e-9, atol=1e-9)
    assert_allclose(ig.backend.to_numpy(far.mean(place(queries))), own.mean(queries), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("count", [0, N])
@pytest.mark.parametrize("kernel", ["RBF", "sum"])
def test_along_neighbours(kernel: str, count: int, place: Any) -> None:
    arguments = KERNELS[kernel], basis("points", 40), "neighbours", NOISE
    expected, slopes = ig.log_evidence_and_gradient(*arguments, X, Y2, neighbours=count)
    A, S = place(X), place(XS)
    value, gradient = ig.log_evidence_and_gradient(*arguments, A, place(Y2), neighbours=count)
    assert_allclose(value, expected, rtol=1e-8)
    for key, slope in slopes.items():
        same(gradient[key], slope, A, key)
    want: Any = ig.condition(*arguments, X, Y2, neighbours=count)
    post: Any = ig.condition(*arguments, A, place(Y2), neighbours=count)
    for name in ("mean", "covariance", "gradient"):
        same(getattr(post, name)(S), getattr(want, name)(XS), A, name)
    for got, marginal in zip(post.predict(S), want.predict(XS), strict=True):
        same(got, marginal, A)


def test_neighbours(place: Any) -> None:
    expected = ig.local.neighbours(KERNELS["RBF"], NOISE, X, Y2, size=20)
    found = ig.local.neighbours(KERNELS["RBF"], NOISE, place(X), place(Y2), size=20)
    A = place(XS[:10])
    np.testing.assert_array_equal(found.rows(A), expected.rows(XS[:10]))
    for got, want in zip(found.predict(A), expected.predict(XS[:10]), strict=True):
        same(got, want, A)


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("labels", [False, True])
def test_relevance_vectors(labels: bool, augment: bool, place: Any) -> None:
    """Learned and asked by NumPy, answered in kind."""
    rows, y = X[:120], np.where(Y > 0, 1.0, -1.0)[:120] if labels else Y[:120]
    settings: Any = dict(
        likelihood=ig.likelihoods.Probit() if labels else None, augment=augment, max_iterations=20
    )
    expected = ig.relevance_vectors(KERNELS["RBF"], rows, y, **settings)
    found = ig.relevance_vectors(KERNELS["RBF"], place(rows), place(y), **settings)
    A = place(XS)
    for got, want in zip(found.predict(A), expected.predict(XS), strict=True):
        same(got, want, A)
    same(found.covariance(A), expected.covariance(XS), A)
    if labels:
        same(found.predict_proba(A), expected.predict_proba(XS), A)


def test_eigenfunctions_and_components(place: Any) -> None:
    A = place(XS)
    expected, found = (
        ig.eigenfunctions.eigenfunctions(KERNELS["RBF"], rows, 5) for rows in (X[:200], place(X[:200]))
    )
    same(found(A), expected(XS), A)
    expected, found = (
        ig.sparse_kernel_pca(ig.kernels.RBF(1.5), rows, 0.1) for rows in (X[:80], place(X[:80]))
    )
    same(found(A), expected(XS), A)


@pytest.mark.parametrize("name", ["vfe", "fitc"])
def test_basis_on_the_device_and_single_precision(name: str, place: Any) -> None:
    """A basis may be given there, too; float32 stays float32 and is as good as it can be."""
    A, y = place(X), place(Y)
    expected, _ = ig.log_evidence_and_gradient(
        KERNELS["RBF"], basis("points"), name, NOISE, X, Y, jitter=1e-5
    )
    value, gradient = ig.log_evidence_and_gradient(
        KERNELS["RBF"], ig.bases.Points(place(Z)), name, NOISE, A, y, jitter=1e-5
    )
    assert_allclose(value, expected, rtol=1e-8)
    small = place(X.astype(np.float32))
    value, gradient = ig.log_evidence_and_gradient(
        KERNELS["RBF"], basis("points"), name, NOISE, small, place(Y.astype(np.float32)), jitter=1e-5
    )
    assert_allclose(value, expected, rtol=1e-3)
    assert gradient["basis.Z"].dtype == small.dtype


def test_fit(place: Any) -> None:
    arguments = ig.kernels.RBF(1.0), ig.bases.Points(Z[:20]), "vfe", 0.1
    expected = ig.fit(*arguments, X, Y, max_iterations=5)
    A = place(XS)
    found = ig.fit(*arguments, place(X), place(Y), max_iterations=5)
    assert_allclose(found.value, expected.value, rtol=1e-6)  # five steps may amplify rounding
    for got, want in zip(found.posterior.predict(A), expected.posterior.predict(XS), strict=True):
        assert type(got) is type(A)
        assert_allclose(ig.backend.to_numpy(got), want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_estimator(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SparseGPRegressor(device=...) takes and gives NumPy arrays, whatever it computes with."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")

    def refuse(tensor: Any, *rest: Any) -> None:
        raise TypeError("a tensor on a device is no NumPy array")

    monkeypatch.setattr(torch.Tensor, "__array__", refuse)
    settings = dict(n_inducing=30, max_iter=5, random_state=0)
    expected = ig.SparseGPRegressor(**settings).fit(X, Y)
    found = ig.SparseGPRegressor(**settings, device=device).fit(X, Y)
    assert_allclose(found.log_evidence_, expected.log_evidence_, rtol=1e-6)
    assert_allclose(found.noise_, expected.noise_, rtol=1e-4)
    for got, want in zip(
        found.predict(XS, return_std=True), expected.predict(XS, return_std=True), strict=True
    ):
        assert isinstance(got, np.ndarray)
        assert_allclose(got, want, rtol=0, atol=1e-4)


def test_estimators_move_tensors_to_the_host_by_name(monkeypatch, tmp_path) -> None:
    """NumPy cannot take a tensor from a GPU by itself; on the CPU it can, so there it is made to fail."""

    def refused(*_: Any, **__: Any) -> None:
        raise TypeError("a tensor was handed to NumPy")

    monkeypatch.setattr(torch.Tensor, "__array__", refused)
    model = ig.SparseGPRegressor(n_inducing=30, max_iter=5, random_state=0, device="cpu").fit(X, Y)
    assert model.predict_interval(XS, 0.9, conformal="jackknife+").shape == (len(XS), 2)
    assert isinstance(model.loo_.mean, np.ndarray) and isinstance(model.report_.upper, float)
    model.save(tmp_path / "model.gp")
    labels = ig.SparseGPClassifier(n_inducing=20, max_iter=5, random_state=0, device="cpu").fit(X, Y > 0)
    assert labels.predict_proba(XS).shape == (len(XS), 2)


@pytest.mark.parametrize("row", ["vfe", "fitc", "pep"])
def test_labels(row: str, place: Any) -> None:
    """A likelihood's evidence, gradient and sites, weights included, heavy ones among them."""
    signs, weights = np.where(Y > 0, 1.0, -1.0), np.where(np.arange(N) % 3 == 0, 40.0, 0.5)
    power = {"power": 0.5} if row == "pep" else {}
    arguments = KERNELS["RBF"], basis("points", 30), row, ig.likelihoods.Probit()
    for some in (None, weights):
        options: dict[str, Any] = {"tolerance": 1e-9, "weights": some} | power
        value, gradient = ig.log_evidence_and_gradient(*arguments, X, signs, **options)
        options["weights"] = None if some is None else place(some)
        got, slopes = ig.log_evidence_and_gradient(*arguments, place(X), place(signs), **options)
        assert_allclose(got, value, rtol=1e-8)
        for name, slope in gradient.items():
            scale = np.max(np.abs(slope))
            assert_allclose(ig.backend.to_numpy(slopes[name]), slope, rtol=0, atol=1e-6 * scale, err_msg=name)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_classifier(device: str) -> None:
    """SparseGPClassifier(device=...) takes labels and gives NumPy arrays: two classes, many, and weights."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    settings = dict(n_inducing=20, max_iter=4, random_state=0)
    for labels in (np.where(Y > 0, "yes", "no"), np.digitize(Y, [-0.5, 0.5])):
        for weight in (None, "balanced"):
            expected = ig.SparseGPClassifier(**settings, class_weight=weight).fit(X, labels)
            model = ig.SparseGPClassifier(**settings, class_weight=weight, device=device).fit(X, labels)
            p = model.predict_proba(XS)
            assert isinstance(p, np.ndarray)
            assert_allclose(p, expected.predict_proba(XS), rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", ["fitc", "exact", "pic", "bcm", "rbcm", "nystrom", "asor", "local"])
def test_two_kinds_of_array_are_refused(name: str, place: Any) -> None:
    def made(A: Any, y: Any) -> Any:
        if name == "local":
            return ig.local.neighbours(KERNELS["RBF"], NOISE, A, y, size=4)
        return ig.condition(KERNELS["RBF"], basis("points", 5), name, NOISE, A, y, blocks=LABELS[:80])

    message = "but the process was made with a .*; convert one"
    for predictor, queries in ((made(X[:80], Y[:80]), place(XS)), (made(place(X[:80]), place(Y[:80])), XS)):
        with pytest.raises(ig.errors.ParameterError, match=message):
            predictor.predict(queries, blocks=LABELS[:50]) if name == "pic" else predictor.predict(queries)


def test_the_graph_stays_out() -> None:
    """A tensor that tracks gradients is data like any other."""
    A = torch.from_numpy(X).requires_grad_()
    value, gradient = ig.log_evidence_and_gradient(
        KERNELS["RBF"], basis("points", 40), "fitc", NOISE, A, torch.from_numpy(Y)
    )
    expected = ig.log_evidence(KERNELS["RBF"], basis("points", 40), "fitc", NOISE, X, Y)
    assert_allclose(value, expected, rtol=1e-8)
    assert not any(g.requires_grad for g in gradient.values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_memory_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows stream there as well: n x m alone would be 8 GB, and chunks are limited, where little is free."""
    for module in (arrays, workers):
        monkeypatch.setattr(module, "device_room", lambda like: 0)
    n, m = 2_000_000, 512
    A = torch.randn(
        (n, 4), device="cuda", dtype=torch.float64, generator=torch.Generator("cuda").manual_seed(0)
    )
    y = torch.sin(A[:, 0])
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    ig.log_evidence_and_gradient(
        ig.kernels.RBF(1.5), ig.bases.Points(A[:m].clone()), "fitc", NOISE, A, y, jitter=1e-5
    )
    assert torch.cuda.max_memory_allocated() - held < 5 * 2**30
