"""Every row of the table x every basis against dense conditioning under its effective prior. [003 Table 1]"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import inducing as ig
import oracle
from inducing.engine import compiled_passes
from inducing.model.table import TABLE, Approximation

LENGTHSCALE, VARIANCE = np.array([0.9, 1.3]), 1.7
ROWS = ("sor", "dtc", "vfe", "fitc", "fic", "pitc", "pic", "pep", "exact")
BASES = ("points", "multiscale")
JITTER = 1e-8
N, M, D = 43, 6, 2

rng = np.random.default_rng(7)
X = rng.uniform(-2, 2, (N, D))
XS = rng.uniform(-2.5, 2.5, (9, D))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.standard_normal(N)
Y2 = np.stack([Y, np.cos(X[:, 1]) - 0.4], axis=1)
NOISE = 0.09
NOISES = rng.uniform(0.02, 0.4, N)
LABELS = np.repeat([4, 0, 7, -1], [20, 3, 1, 19])[rng.permutation(N)]  # unequal blocks, in no order
QUERY_LABELS = np.array([4, 0, 7, 4, -1, 99, 99, 0, 55])  # 99 and 55 are unseen
CENTERS = np.array([[-1.6, -1.2], [-1.0, 1.3], [0.1, -0.2], [0.8, 1.7], [1.5, -1.4], [1.9, 0.6]])
WIDTHS = np.array([[0.9, 1.3], [1.1, 1.0], [0.7, 1.9], [1.4, 1.4], [2.3, 1.1], [0.8, 2.5]])


def package_basis(kind: str) -> Any:
    return ig.bases.Points(CENTERS) if kind == "points" else ig.bases.Multiscale(CENTERS, WIDTHS)


def oracle_basis(kind: str, jitter: float = JITTER) -> oracle.Basis:
    if kind == "points":
        return oracle.jittered(oracle.points(K0, CENTERS), jitter)
    return oracle.jittered(oracle.multiscale(CENTERS, WIDTHS, LENGTHSCALE, VARIANCE), jitter)


K0 = oracle.bind(oracle.rbf, lengthscale=LENGTHSCALE, variance=VARIANCE)
KERNEL = ig.kernels.RBF(lengthscale=LENGTHSCALE, variance=VARIANCE)


def row_keywords(name: str, labels: Any = LABELS) -> dict[str, Any]:
    return {"blocks": labels} if name in oracle.BLOCKED else {"power": 0.4} if name == "pep" else {}


def query_keywords(name: str) -> dict[str, Any]:
    return {"blocks": QUERY_LABELS} if name == "pic" else {}


def check(post: Any, name: str, reference: tuple[Any, Any], evidence: float, rtol: float = 1e-8) -> None:
    """mean, variance, joint covariance and evidence equal the dense ones, relative to the size of each."""
    mean, cov = reference
    got_mean, got_var = post.predict(XS, **query_keywords(name))
    assert got_mean.shape == mean.shape
    assert got_var.shape == (len(XS),)
    assert_allclose(got_mean, mean, rtol=rtol, atol=rtol * np.max(np.abs(mean)))
    assert_allclose(got_var, np.diag(cov), rtol=rtol, atol=rtol * VARIANCE * 1e-1)
    assert_allclose(post.covariance(XS, **query_keywords(name)), cov, rtol=rtol, atol=rtol * VARIANCE)
    assert_allclose(post.log_evidence, evidence, rtol=rtol)


def verify(
    post: Any,
    name: str,
    basis: Any,
    noise: Any,
    A: Any,
    y: Any,
    *,
    k: Any = K0,
    row: Any = None,
    rtol: float = 1e-8,
) -> None:
    """`check` against dense conditioning of (A, y) under the effective prior of `name`; `row` replaces its
    keywords.
    """
    row = row_keywords(name) if row is None else row
    queries = {"query_blocks": QUERY_LABELS} if name == "pic" else {}
    prior = oracle.joint_prior(name, k, basis, A, XS, **row, **queries)
    evidence = oracle.log_evidence(name, k, basis, noise, A, y, **row)
    check(post, name, oracle.condition(prior, noise, y), evidence, rtol)


# the rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("noise", [NOISE, NOISES], ids=["scalar noise", "row noise"])
@pytest.mark.parametrize("name", ROWS)
def test_row_equals_dense_conditioning(name: str, noise: Any, y: Any, kind: str) -> None:
    basis, keywords = oracle_basis(kind), row_keywords(name)
    post = ig.condition(KERNEL, package_basis(kind), name, noise, X, y, jitter=JITTER, **keywords)
    verify(post, name, basis, noise, X, y)
    value = ig.log_evidence(KERNEL, package_basis(kind), name, noise, X, y, jitter=JITTER, **keywords)
    assert_allclose(value, oracle.log_evidence(name, K0, basis, noise, X, y, **keywords), rtol=1e-8)


@pytest.mark.parametrize("name", ROWS)
def test_jitter_zero_and_its_convention(name: str) -> None:
    """jitter=0 adds nothing; a large jitter is jitter * mean(diag Kuu), on Kuu only (exact needs none)."""
    for jitter in (0.0, 1e-2):
        basis, keywords = oracle_basis("multiscale", jitter), row_keywords(name)
        post = ig.condition(KERNEL, package_basis("multiscale"), name, NOISE, X, Y, jitter=jitter, **keywords)
        verify(post, name, basis, NOISE, X, Y)


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("name", ROWS)
def test_mean_function(name: str, kind: str) -> None:
    def m0(A: Any) -> Any:
        return 0.7 + A @ np.array([0.3, -1.1])

    basis, keywords = oracle_basis(kind), row_keywords(name)
    mean = ig.means.Linear(weights=[0.3, -1.1], bias=0.7)
    post = ig.condition(KERNEL, package_basis(kind), name, NOISES, X, Y, mean=mean, jitter=JITTER, **keywords)
    queries = {"query_blocks": QUERY_LABELS} if name == "pic" else {}
    prior = oracle.joint_prior(name, K0, basis, X, XS, **keywords, **queries)
    evidence = oracle.log_evidence(name, K0, basis, NOISES, X, Y, m0=m0(X), **keywords)
    check(post, name, oracle.condition(prior, NOISES, Y, m0(X), m0(XS)), evidence)


@pytest.mark.parametrize(
    ("y", "value"), [(Y, [1.0, 2.0]), (Y2, [1.0, 2.0, 3.0])], ids=["two for one", "three for two"]
)
def test_a_mean_for_other_outputs_is_refused(y: Any, value: Any) -> None:
    with pytest.raises(ig.errors.ShapeError):
        ig.condition(KERNEL, package_basis("points"), "fitc", NOISE, X, y, mean=ig.means.Constant(value))


@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("name", ROWS)
def test_weights_repeat_rows(name: str, y: Any) -> None:
    """An integer weight is the row that many times, literally; zero leaves it out."""
    weights = np.random.default_rng(3).integers(0, 4, N)
    basis, keywords = (
        oracle_basis("points"),
        row_keywords(name) | {"weights": weights.astype(float), "jitter": JITTER},
    )
    post = ig.condition(KERNEL, package_basis("points"), name, NOISES, X, y, **keywords)
    Xr, yr, noise, labels = oracle.repeat(weights, X, y, NOISES, LABELS)
    verify(post, name, basis, noise, Xr, yr, row=row_keywords(name, labels))


@pytest.mark.parametrize("name", oracle.DIAGONAL)
def test_half_weights_on_doubled_rows_change_nothing(name: str) -> None:
    basis, keywords = oracle_basis("points"), row_keywords(name)
    X_, y, noise = (np.concatenate([a, a]) for a in (X, Y, NOISES))
    post = ig.condition(
        KERNEL,
        package_basis("points"),
        name,
        noise,
        X_,
        y,
        jitter=JITTER,
        weights=np.full(2 * N, 0.5),
        **keywords,
    )
    verify(post, name, basis, NOISES, X, Y)


GRID = np.stack(np.meshgrid(np.linspace(-2.7, 2.7, 4), np.linspace(-2.5, 2.5, 3)), axis=-1).reshape(12, 2)
SPREAD = np.random.default_rng(4).uniform(1.0, 2.0, (12, 2))


def many_rows(n: int) -> tuple[Any, Any, Any]:
    r = np.random.default_rng(1)
    A = r.uniform(-3, 3, (n, 2))
    return A, np.sin(A[:, 0]) + 0.2 * r.standard_normal(n), r.uniform(0.05, 0.2, n)


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("name", oracle.DIAGONAL)
def test_many_chunks(name: str, kind: str) -> None:
    """n far above one chunk of rows, and m above a few: threads and compiled loops take over."""
    A, y, noise = many_rows(9001)
    row, dense = row_keywords(name), oracle.multiscale(GRID, SPREAD, LENGTHSCALE, VARIANCE)
    basis = oracle.jittered(oracle.points(K0, GRID) if kind == "points" else dense, JITTER)
    ours = ig.bases.Points(GRID) if kind == "points" else ig.bases.Multiscale(GRID, SPREAD)
    post = ig.condition(KERNEL, ours, name, noise, A, y, jitter=JITTER, **row)
    mean, cov, value = oracle.low_rank(name, K0, basis, noise, A, y, XS, **row)
    if name == "fic":
        Q = oracle.q_matrix(basis, XS, XS)
        cov = cov - np.where(np.eye(len(XS)), 0.0, K0(XS, XS) - Q)
    check(post, name, (mean, cov), value)


def test_many_blocks() -> None:
    A, y, noise = many_rows(1300)
    row = {"blocks": np.random.default_rng(2).integers(0, 40, len(A))}
    post = ig.condition(KERNEL, package_basis("points"), "pitc", noise, A, y, jitter=JITTER, **row)
    verify(post, "pitc", oracle_basis("points"), noise, A, y, row=row)


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("name", ["dtc", "vfe", "fitc", "pep"])
def test_gradient_over_many_chunks(name: str, kind: str) -> None:
    A, y, _ = many_rows(9001)
    names = {"points": ["basis.Z"], "multiscale": ["basis.centers", "basis.widths"]}[kind]
    values = dict(zip(names, [GRID, SPREAD], strict=False))
    parameters = {"kernel.lengthscale": LENGTHSCALE, "kernel.variance": VARIANCE, "noise": NOISE}
    direction = {
        key: np.random.default_rng(i).standard_normal(v.shape) for i, (key, v) in enumerate(values.items())
    }

    def value(p: dict[str, Any]) -> float:
        l, v = p["kernel.lengthscale"], p["kernel.variance"]
        k, at = (
            oracle.bind(oracle.rbf, lengthscale=l, variance=v),
            [values[t] + p[t] * direction[t] for t in names],
        )
        basis = oracle.points(k, *at) if kind == "points" else oracle.multiscale(*at, l, v)
        return oracle.low_rank(
            name, k, oracle.jittered(basis, 1e-3), p["noise"], A, y, XS, **row_keywords(name)
        )[2]

    ours = ig.bases.Points(GRID) if kind == "points" else ig.bases.Multiscale(GRID, SPREAD)
    _, got = ig.log_evidence_and_gradient(KERNEL, ours, name, NOISE, A, y, jitter=1e-3, **row_keywords(name))
    got |= {key: np.sum(got[key] * direction[key]) for key in names}  # one direction for the whole basis
    check_gradient(got, oracle.central_differences(value, parameters | dict.fromkeys(names, 0.0)))


@pytest.mark.parametrize("name", ["dtc", "fitc", "pitc", "exact"])
def test_other_kernel_and_composite(name: str) -> None:
    def k(A: Any, B: Any) -> Any:
        first = oracle.matern32(A, B, lengthscale=0.8, variance=0.6)
        return first + K0(A, B) * oracle.rbf(A[:, :1], B[:, :1], 2.0, 1.2)

    kernel = ig.kernels.Matern32(lengthscale=0.8, variance=0.6) + KERNEL * ig.kernels.RBF(
        lengthscale=2.0, variance=1.2, columns=(0,)
    )
    basis, keywords = oracle.jittered(oracle.points(k, CENTERS), JITTER), row_keywords(name)
    post = ig.condition(kernel, package_basis("points"), name, NOISE, X, Y, jitter=JITTER, **keywords)
    verify(post, name, basis, NOISE, X, Y, k=k)


def test_subset_of_data() -> None:
    """SoD is the exact GP on the basis points' own rows. [003 section 3]"""
    rows = np.array([3, 17, 21, 30, 38])
    post = ig.condition(KERNEL, ig.bases.Points(X[rows]), "sod", NOISES, X, Y2, jitter=JITTER)
    verify(post, "exact", None, NOISES[rows], X[rows], Y2[rows])


# limits -----------------------------------------------------------------------------------------------------


def given_row(name: str, *, basis: Any = None, y: Any = Y, **keywords: Any) -> Any:
    basis = package_basis("points") if basis is None else basis
    return ig.condition(KERNEL, basis, name, NOISES, X, y, jitter=keywords.pop("jitter", 0.0), **keywords)


def exact_reference() -> tuple[Any, float]:
    prior = oracle.joint_prior("exact", K0, None, X, XS)
    return oracle.condition(prior, NOISES, Y), oracle.log_evidence("exact", K0, None, NOISES, X, Y)


def test_remark_5_dtc_has_the_mean_of_sor_and_more_variance() -> None:
    sor, dtc = given_row("sor"), given_row("dtc")
    far = np.vstack([XS, [[30.0, 30.0]]])
    assert_allclose(dtc.mean(far), sor.mean(far), rtol=1e-12, atol=1e-14)
    (_, narrow), (_, wide) = sor.predict(far), dtc.predict(far)
    assert np.all(wide >= narrow - 1e-14)
    assert_allclose([narrow[-1], wide[-1]], [0.0, VARIANCE], atol=1e-10)
    assert sor.log_evidence == pytest.approx(dtc.log_evidence, rel=1e-13)


@pytest.mark.parametrize("name", ["vfe", "fitc", "dtc", "pep"])
def test_basis_at_the_data_is_exact(name: str) -> None:
    """Q = K at Z = X: every row is then the exact GP. Kuu is n x n, so what jitter is needed sets the
    tolerance.
    """
    post = given_row(name, basis=ig.bases.Points(X), jitter=1e-10, **row_keywords(name))
    verify(post, "exact", None, NOISES, X, Y, rtol=1e-5)


def test_pitc_with_n_blocks_is_fitc() -> None:
    verify(given_row("pitc", blocks=np.arange(N)[::-1]), "fitc", oracle_basis("points", 0.0), NOISES, X, Y)


def test_pitc_with_one_block_has_the_exact_evidence() -> None:
    assert_allclose(given_row("pitc", blocks=np.full(N, 5)).log_evidence, exact_reference()[1], rtol=1e-9)


def test_pic_with_one_block_is_exact_and_unseen_labels_are_pitc() -> None:
    pic = given_row("pic", blocks=np.full(N, 5))
    (mean, cov), evidence = exact_reference()
    got_mean, got_var = pic.predict(XS, blocks=np.full(len(XS), 5))
    assert_allclose(got_mean, mean, rtol=1e-8, atol=1e-8)
    assert_allclose(got_var, np.diag(cov), rtol=1e-8, atol=1e-9)
    assert_allclose(pic.covariance(XS, blocks=np.full(len(XS), 5)), cov, rtol=1e-8, atol=1e-9)
    assert_allclose(pic.log_evidence, evidence, rtol=1e-9)
    unseen_mean, unseen_var = pic.predict(XS, blocks=np.full(len(XS), 6))
    prior = oracle.joint_prior("pitc", K0, oracle_basis("points", 0.0), X, XS, blocks=np.full(N, 5))
    pitc_mean, pitc_cov = oracle.condition(prior, NOISES, Y)
    assert_allclose(unseen_mean, pitc_mean, rtol=1e-8, atol=1e-9)
    assert_allclose(unseen_var, np.diag(pitc_cov), rtol=1e-8, atol=1e-9)


def test_pep_ends() -> None:
    """power = 1 is FITC; power -> 0 is VFE, linearly in power."""
    basis = oracle_basis("points", 0.0)
    verify(given_row("pep", power=1.0), "fitc", basis, NOISES, X, Y)
    mean, _ = oracle.condition(oracle.joint_prior("vfe", K0, basis, X, XS), NOISES, Y)
    evidence = oracle.log_evidence("vfe", K0, basis, NOISES, X, Y)
    gaps = []
    for power in (1e-4, 1e-6, 1e-8):
        post = given_row("pep", power=power)
        gaps.append([np.max(np.abs(post.predict(XS)[0] - mean)), abs(post.log_evidence - evidence)])
    assert np.all(np.array(gaps[1]) < 0.02 * np.array(gaps[0]))
    assert np.all(np.array(gaps[2]) < [1e-6, 1e-6 * abs(evidence)])


@pytest.mark.parametrize("name", ROWS)
def test_multiscale_at_the_lengthscale_is_points(name: str) -> None:
    widths = np.broadcast_to(LENGTHSCALE, CENTERS.shape).copy()
    post = given_row(name, basis=ig.bases.Multiscale(CENTERS, widths), **row_keywords(name))
    verify(post, name, oracle_basis("points", 0.0), NOISES, X, Y)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n=st.integers(1, 30),
    m=st.integers(1, 8),
    d=st.integers(1, 3),
    log_noise=st.floats(-9, 1),
)
def test_vfe_is_a_lower_bound(seed: int, n: int, m: int, d: int, log_noise: float) -> None:
    """Also with jitter: u seen through noise is still a valid set of inducing variables, so R stays >= 0."""
    r = np.random.default_rng(seed)
    A, Z, y, noise = r.normal(size=(n, d)), r.normal(size=(m, d)), r.normal(size=n), np.exp(log_noise)
    value = ig.log_evidence(ig.kernels.RBF(0.8, 1.3), ig.bases.Points(Z), "vfe", noise, A, y, jitter=1e-8)
    exact = oracle.log_evidence(
        "exact", oracle.bind(oracle.rbf, lengthscale=0.8, variance=1.3), None, noise, A, y
    )
    assert value <= exact + 1e-6 * (1 + abs(exact))


# which rows are Gaussian processes: 003 remarks 4, 6, 7, 8 --------------------------------------------------


def test_remark_4_sor_is_exact_inference_with_k_sor() -> None:
    """003 eq. 16a is eq. 6 with k replaced by k_SoR everywhere."""
    U = np.linalg.inv(K0(CENTERS, CENTERS))

    def k_sor(A: Any, B: Any) -> Any:
        return K0(A, CENTERS) @ U @ K0(CENTERS, B)

    verify(given_row("sor"), "exact", None, NOISES, X, Y, k=k_sor)


def test_remark_7_fic_is_exact_inference_with_k_fic() -> None:
    """k_FIC(i, j) = k_SoR(i, j) + delta_ij (k - k_SoR), over the index of training and test cases
    together.
    """
    A = np.vstack([X, XS])
    U = np.linalg.inv(K0(CENTERS, CENTERS))
    k_sor = K0(A, CENTERS) @ U @ K0(CENTERS, A)
    k_fic = np.where(np.eye(len(A), dtype=bool), K0(A, A), k_sor)
    reference = oracle.condition((k_fic[:N, :N], k_fic[:N, N:], k_fic[N:, N:]), NOISES, Y)
    check(given_row("fic"), "fic", reference, oracle.log_normal(Y, k_fic[:N, :N] + np.diag(NOISES)))


def chain_rule_gap(name: str, split: int = 34) -> float:
    """log q(y1, y2) - log q(y1) - log q(y2 | y1): zero for every split exactly when the row is one Gaussian
    process.
    """
    first, rest = slice(0, split), slice(split, N)

    def row(rows: slice) -> Any:
        keywords = row_keywords(name, LABELS[rows]) | {"jitter": 0.0}
        return ig.condition(KERNEL, package_basis("points"), name, NOISES[rows], X[rows], Y[rows], **keywords)

    post, labels = row(first), ({"blocks": LABELS[rest]} if name == "pic" else {})
    mean, _ = post.predict(X[rest], **labels)
    cov = post.covariance(X[rest], **labels) + np.diag(NOISES[rest])
    return row(slice(0, N)).log_evidence - post.log_evidence - oracle.log_normal(Y[rest] - mean, cov)


@pytest.mark.parametrize("name", ["exact", "sor", "fic", "pic"])
def test_remarks_4_and_7_chain_rule_holds(name: str) -> None:
    assert abs(chain_rule_gap(name)) < 1e-7


@pytest.mark.parametrize("name", ["dtc", "fitc", "pitc"])
def test_remarks_6_and_8_chain_rule_fails(name: str) -> None:
    assert abs(chain_rule_gap(name)) > 1e-2


def test_fitc_is_consistent_for_a_single_test_case() -> None:
    """003 eq. 23 and eq. 25 agree on one test case; only joint predictions tell FITC from FIC."""
    assert abs(chain_rule_gap("fitc", N - 1)) < 1e-8
    assert abs(chain_rule_gap("dtc", N - 1)) > 1e-3


# gradients against central differences of the dense evidence ------------------------------------------------


def check_gradient(got: dict[str, Any], expected: dict[str, Any]) -> None:
    assert set(expected) <= set(got), f"missing {set(expected) - set(got)}"
    assert all(np.all(np.asarray(got[key]) == 0) for key in set(got) - set(expected)), (
        "a gradient out of nowhere"
    )
    for key, value in expected.items():
        assert np.shape(got[key]) == value.shape, key
        assert_allclose(got[key], value, rtol=1e-5, atol=1e-5 * np.max(np.abs(value)), err_msg=key)


@pytest.mark.parametrize("noise", [NOISE, NOISES], ids=["scalar noise", "row noise"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, kind) for name in ROWS[:-1] for kind in BASES), ("exact", "points"), ("sod", "points")],
)
def test_gradient(name: str, noise: Any, kind: str) -> None:
    """Every key, with a mean function, two outputs and a jitter large enough for its own dependence to
    count.
    """
    jitter, keywords = 1e-3, row_keywords(name)
    rows = np.arange(5, 13) if name == "sod" else np.arange(N)
    parameters = {
        "kernel.lengthscale": LENGTHSCALE,
        "kernel.variance": VARIANCE,
        "noise": noise,
        "mean.weights": np.array([0.3, -1.1]),
        "mean.bias": 0.7,
    }
    if name not in ("exact", "sod"):
        parameters |= (
            {"basis.Z": CENTERS} if kind == "points" else {"basis.centers": CENTERS, "basis.widths": WIDTHS}
        )

    def value(p: dict[str, Any]) -> float:
        l, v = p["kernel.lengthscale"], p["kernel.variance"]
        k = oracle.bind(oracle.rbf, lengthscale=l, variance=v)
        basis = None
        if "basis.Z" in p:
            basis = oracle.jittered(oracle.points(k, p["basis.Z"]), jitter)
        elif "basis.widths" in p:
            basis = oracle.jittered(oracle.multiscale(p["basis.centers"], p["basis.widths"], l, v), jitter)
        m0, s2 = X @ p["mean.weights"] + p["mean.bias"], oracle.noise_vector(p["noise"], N)
        row = "exact" if name == "sod" else name
        return oracle.log_evidence(row, k, basis, s2[rows], X[rows], Y2[rows], m0=m0[rows], **keywords)

    basis = ig.bases.Points(X[rows]) if name == "sod" else package_basis(kind)
    mean = ig.means.Linear(weights=[0.3, -1.1], bias=0.7)
    got_value, got = ig.log_evidence_and_gradient(
        KERNEL,
        basis,
        name,
        noise,
        X,
        Y2,
        mean=mean,
        jitter=0.0 if name in ("exact", "sod") else jitter,
        **keywords,
    )
    assert_allclose(got_value, value(parameters), rtol=1e-8)
    check_gradient(got, oracle.central_differences(value, parameters))


@pytest.mark.parametrize("name", ["dtc", "vfe", "fitc", "pitc", "pep", "exact"])
def test_gradient_of_a_composite_kernel_with_weights(name: str) -> None:
    keywords = row_keywords(name)
    weights = np.random.default_rng(3).integers(0, 4, N)
    Xr, yr, labels = oracle.repeat(weights, X, Y, LABELS)
    parameters = {
        "kernel.0.lengthscale": 0.8,
        "kernel.0.variance": 0.6,
        "kernel.1.0.lengthscale": LENGTHSCALE,
        "kernel.1.0.variance": VARIANCE,
        "kernel.1.1.lengthscale": 2.0,
        "kernel.1.1.variance": 1.2,
        "noise": NOISES,
    } | ({} if name == "exact" else {"basis.Z": CENTERS})

    def value(p: dict[str, Any]) -> float:
        def k(A: Any, B: Any) -> Any:
            second = oracle.rbf(A, B, p["kernel.1.0.lengthscale"], p["kernel.1.0.variance"])
            third = oracle.rbf(A[:, :1], B[:, :1], p["kernel.1.1.lengthscale"], p["kernel.1.1.variance"])
            return oracle.matern32(A, B, p["kernel.0.lengthscale"], p["kernel.0.variance"]) + second * third

        basis = None if name == "exact" else oracle.jittered(oracle.points(k, p["basis.Z"]), 1e-3)
        return oracle.log_evidence(
            name, k, basis, np.repeat(p["noise"], weights), Xr, yr, **row_keywords(name, labels)
        )

    kernel = ig.kernels.Matern32(0.8, 0.6) + KERNEL * ig.kernels.RBF(2.0, 1.2, columns=(0,))
    _, got = ig.log_evidence_and_gradient(
        kernel, package_basis("points"), name, NOISES, X, Y, jitter=1e-3, weights=weights, **keywords
    )
    check_gradient(got, oracle.central_differences(value, parameters))


# new rows ---------------------------------------------------------------------------------------------------

ADDED = {  # the row, the known one with its training evidence, and the known one with its test conditional
    "half": (Approximation("half", 0.5, "diagonal", "deterministic"), ("pep", {"power": 0.5}), "sor"),
    "spread": (Approximation("spread", 0.0, "diagonal", "independent"), ("vfe", {}), "fic"),
    "dropped": (Approximation("dropped", 0.3, "nothing", "exact"), ("dtc", {}), "dtc"),
    "whole": (Approximation("whole", 1.0, "blocks", "deterministic"), ("pitc", {"blocks": LABELS}), "sor"),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["arrays", "compiled"])
@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("name", ADDED)
def test_a_new_row_is_right_on_every_path(
    name: str, kind: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that the table gets is data: its evidence, gradient and processes need no code of their own."""
    entry, (like, keywords), test = ADDED[name]
    monkeypatch.setitem(TABLE, name, entry)
    monkeypatch.setattr(compiled_passes, "LEAST", 0 if compiled else 1 << 60)
    basis, mine = oracle_basis(kind), {"blocks": LABELS} if entry.blocks else {}
    package = package_basis(kind)
    expected = oracle.log_evidence(like, K0, basis, NOISES, X, Y, **keywords)
    post = ig.condition(KERNEL, package, name, NOISES, X, Y, jitter=JITTER, **mine)
    value, gradient = ig.log_evidence_and_gradient(KERNEL, package, name, NOISES, X, Y, jitter=JITTER, **mine)
    assert_allclose([post.log_evidence, value], expected, rtol=1e-9)
    mean, cov = oracle.condition(oracle.joint_prior(like, K0, basis, X, XS, **keywords), NOISES, Y)
    assert_allclose(post.predict(XS)[0], mean, atol=1e-8)
    Qs = oracle.q_matrix(basis, XS, XS)
    rest = {"sor": 0.0 * Qs, "fic": np.diag(np.diag(K0(XS, XS) - Qs)), "dtc": K0(XS, XS) - Qs}
    assert_allclose(post.covariance(XS), cov - (K0(XS, XS) - Qs) + rest[test], atol=1e-8)
    known = ig.log_evidence_and_gradient(KERNEL, package, like, NOISES, X, Y, jitter=JITTER, **keywords)[1]
    for key, slope in known.items():
        assert_allclose(gradient[key], slope, rtol=1e-9, atol=1e-11 * np.max(np.abs(slope)), err_msg=key)
    if not entry.blocks:
        source = ig.as_source(X, Y, chunk_rows=10)
        got = ig.log_evidence(KERNEL, package, name, NOISE, source, jitter=JITTER)
        assert_allclose(got, oracle.log_evidence(like, K0, basis, NOISE, X, Y, **keywords), rtol=1e-9)


@pytest.mark.parametrize(
    ("power", "keeps"), [(0.5, "blocks"), (0.0, "blocks"), (1.5, "diagonal"), (-0.1, "nothing")]
)
def test_a_row_that_cannot_be_is_refused(power: float, keeps: Any) -> None:
    with pytest.raises(ig.errors.ParameterError, match="power"):
        Approximation("new", power, keeps, "exact")
