"""Vector-valued processes: their kernels against derivatives of the potential, learning against dense
formulas of 004 §5.4.
"""

import itertools
import json
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

import inducing as ig
from inducing.errors import FactorisationError, NonFiniteError, ParameterError, ShapeError, UnknownNameError
from inducing.files import models as files
from inducing.inference import fields
from inducing.inference.fields import stack, unstack
from inducing.inference.mixtures import Mixtures
from inducing.model import kernels, means
from inducing.model.kernels import RBF, Category, CurlFree, DivergenceFree, Independent, Kernel, Matern32

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 3.0, (6, 2))  # nodes
XS = RNG.uniform(0.0, 3.0, (5, 2))
WIND = DivergenceFree(2.0, 3.0) + CurlFree(1.3, 0.7) + Independent([4.0, 5.0])
B = np.array([[2.0, -0.6, 0.3], [-0.6, 1.0, 0.2], [0.3, 0.2, 0.5]])
COREGIONALISED = Category(2, 3, 3, np.linalg.cholesky(B - 0.1 * np.eye(3)), [0.1, 0.1, 0.1])

KERNELS: dict[str, tuple[Kernel, int]] = {
    "independent": (Independent([1.5, 0.4]), 2),
    "coregionalised": (COREGIONALISED * RBF(1.2, columns=(0, 1)), 3),
    "linear model of coregionalisation": (
        Category(2, 2) * RBF(0.7, columns=(0, 1))
        + Independent([0.2, 0.3], columns=(2,)) * Matern32(2.0, columns=(0, 1)),
        2,
    ),
    "curl free rbf": (CurlFree(1.2, 1.7, "rbf"), 2),
    "curl free matern52": (CurlFree(1.2, 1.7), 2),
    "divergence free rbf": (DivergenceFree(0.8, 0.6, "rbf"), 2),
    "divergence free matern52": (DivergenceFree(0.8, 0.6), 2),
    "helmholtz": (WIND, 2),
}
each_kernel = pytest.mark.parametrize(("kernel", "components"), KERNELS.values(), ids=list(KERNELS))


def potential(kind: str, lengthscale: float, variance: float) -> Any:
    """The scalar kernel whose gradient has this variance in each component: variance ℓ²/(-2G'(0)) G(s)."""

    def k(*xz: Any) -> Any:
        d = len(xz) // 2
        s = sum((a - b) ** 2 for a, b in zip(xz[:d], xz[d:])) / mpmath.mpf(lengthscale) ** 2
        if kind == "rbf":
            return variance * lengthscale**2 * mpmath.exp(-s / 2)
        rho = mpmath.sqrt(5 * s)
        return 0.6 * variance * lengthscale**2 * (1 + rho + rho**2 / 3) * mpmath.exp(-rho)

    return k


@pytest.mark.parametrize("kind", ["rbf", "matern52"])
def test_fields_are_derivatives_of_their_potential(kind: str) -> None:
    """K_ij = ∂²k/∂xᵢ∂zⱼ for ∇χ, and the same turned for (-∂ψ/∂y, ∂ψ/∂x)."""
    lengthscale, variance, k = 1.3, 0.7, potential(kind, 1.3, 0.7)
    with mpmath.workdps(30):
        for x, z in ((X[0], XS[0]), (X[1], XS[1])):
            H = np.empty((2, 2))
            for i, j in itertools.product(range(2), range(2)):
                order = [0, 0, 0, 0]
                order[i], order[2 + j] = 1, 1
                H[i, j] = float(mpmath.diff(k, tuple(map(mpmath.mpf, (*x, *z))), tuple(order)))
            inputs = stack(x[None]), stack(z[None])
            assert_allclose(CurlFree(lengthscale, variance, kind)(*inputs), H, rtol=1e-10, atol=1e-12)
            turned = np.array([[H[1, 1], -H[1, 0]], [-H[0, 1], H[0, 0]]])
            assert_allclose(
                DivergenceFree(lengthscale, variance, kind)(*inputs), turned, rtol=1e-10, atol=1e-12
            )


def test_a_gradient_field_has_as_many_components_as_dimensions() -> None:
    rng = np.random.default_rng(100)
    X3, k = rng.normal(size=(2, 3)), potential("matern52", 1.1, 2.0)
    K = CurlFree(1.1, 2.0)(stack(X3[:1], 3), stack(X3[1:], 3))
    with mpmath.workdps(30):
        point = tuple(map(mpmath.mpf, X3.ravel()))
        assert_allclose(K[2, 0], float(mpmath.diff(k, point, (0, 0, 1, 1, 0, 0))), rtol=1e-10)
        assert_allclose(K[1, 1], float(mpmath.diff(k, point, (0, 1, 0, 0, 1, 0))), rtol=1e-10)


def test_components_are_blocks() -> None:
    k = RBF(0.9)(X, XS)
    positions = RBF(0.9, columns=(0, 1))
    assert_allclose(
        (Independent([1.5, 0.4]) * positions)(stack(X), stack(XS)),
        np.kron(k, np.diag([1.5, 0.4])),
        rtol=1e-13,
    )
    assert_allclose((COREGIONALISED * positions)(stack(X, 3), stack(XS, 3)), np.kron(k, B), rtol=1e-12)


@each_kernel
def test_a_kernel_is_symmetric_positive_and_its_diagonal(kernel: Kernel, components: int) -> None:
    inputs = stack(X, components)
    K = kernel(inputs, inputs, np.full((len(inputs), len(inputs)), np.nan))
    assert_allclose(K, K.T, rtol=0, atol=1e-13)
    assert_allclose(kernel.diag(inputs), np.diag(K), rtol=1e-12, atol=1e-14)
    assert np.linalg.eigvalsh(0.5 * (K + K.T))[0] > -1e-12 * np.max(K)
    assert kernel(inputs, inputs[:0]).shape == (len(inputs), 0) and kernel.diag(inputs[:0]).shape == (0,)


def difference(J: Any, at: Any, h: float = 3e-6) -> np.ndarray:
    at = np.asarray(at, dtype=float)
    slope = np.empty(at.shape)
    for i in np.ndindex(at.shape):
        step = np.zeros(at.shape)
        step[i] = h
        slope[i] = (J(at + step) - J(at - step)) / (2 * h)
    return slope


@each_kernel
def test_pullbacks_are_derivatives(kernel: Kernel, components: int) -> None:
    rng = np.random.default_rng(101)
    A, Z = stack(X, components), stack(XS, components)
    Z[0] = A[0]  # also where two inputs coincide
    Kbar, kbar = rng.normal(size=(len(A), len(Z))), rng.normal(size=len(A))
    gradients, Zbar = kernel.pullback(A, Z, Kbar.copy(), kernel(A, Z))
    assert set(gradients) == set(kernel.parameters)
    for name, value in kernel.parameters.items():
        expected = difference(lambda v: float(np.sum(Kbar * kernel.with_parameters({name: v})(A, Z))), value)  # noqa: B023
        assert_allclose(gradients[name], expected, rtol=1e-6, atol=1e-6)
        expected = difference(lambda v: float(kbar @ kernel.with_parameters({name: v}).diag(A)), value)  # noqa: B023
        assert_allclose(kernel.diag_pullback(A, kbar)[name], expected, rtol=1e-6, atol=1e-8)
    positions = difference(
        lambda V: float(np.sum(Kbar * kernel(A, np.column_stack([V, Z[:, -1]])))), Z[:, :-1]
    )
    assert_allclose(Zbar[:, :-1], positions, rtol=1e-5, atol=1e-5)
    assert np.all(Zbar[:, -1] == 0.0)  # a component does not move


@each_kernel
def test_specs_round_trip(kernel: Kernel, components: int) -> None:
    back = kernels.from_spec(json.loads(json.dumps(kernel.spec())))
    A, Z = stack(X, components), stack(XS, components)
    assert back.spec() == kernel.spec()
    np.testing.assert_array_equal(back(A, Z), kernel(A, Z))


@each_kernel
def test_torch_gives_the_same_numbers(kernel: Kernel, components: int) -> None:
    rng = np.random.default_rng(102)
    torch = pytest.importorskip("torch")
    A, Z = stack(X, components), stack(XS, components)
    Kbar = rng.normal(size=(len(A), len(Z)))
    assert_allclose(kernel(torch.asarray(A), torch.asarray(Z)).numpy(), kernel(A, Z), rtol=1e-11, atol=1e-12)
    gradients, Zbar = kernel.pullback(A, Z, Kbar.copy())
    found, tZbar = kernel.pullback(torch.asarray(A), torch.asarray(Z), torch.asarray(Kbar.copy()))
    assert_allclose(tZbar.numpy(), Zbar, rtol=1e-9, atol=1e-10)
    for name in gradients:
        assert_allclose(found[name].numpy(), gradients[name], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Independent(2.0), ParameterError, "each component"),
        (lambda: Independent([1.0, -1.0]), ParameterError, "variance"),
        (lambda: CurlFree(0.0), ParameterError, "lengthscale"),
        (lambda: CurlFree(1.0, 1.0, "matern12"), UnknownNameError, "matern12"),
        (lambda: DivergenceFree()(stack(X, 3), stack(X, 4)), ParameterError, "0 to 1"),
        (lambda: DivergenceFree()(np.zeros((2, 4)), np.zeros((2, 4))), ShapeError, "4 inputs"),
        (
            lambda: Independent([1.0, 1.0])(np.array([[0.0, 0.5]]), stack(X[:1])),
            ParameterError,
            "row 0 is 0.5",
        ),
    ],
)
def test_bad_kernels_are_refused(make: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


def test_independent_components_are_separate_processes() -> None:
    rng = np.random.default_rng(103)
    Y, noise = rng.normal(size=(6, 2)), 0.3
    kernel = Independent([1.5, 0.4]) * RBF(0.9, columns=(0, 1))
    joint = ig.condition(kernel, ig.bases.Points(stack(X)), "fitc", noise, stack(X), Y.ravel(), jitter=0.0)
    mean, variance = (unstack(part) for part in joint.predict(stack(XS)))
    for i, scale in enumerate((1.5, 0.4)):
        alone = ig.condition(RBF(0.9, scale), ig.bases.Points(X), "fitc", noise, X, Y[:, i], jitter=0.0)
        assert_allclose(mean[:, i], alone.predict(XS).mean, rtol=1e-8)
        assert_allclose(variance[:, i], alone.predict(XS).variance, rtol=1e-8)


@pytest.mark.parametrize("kind", ["rbf", "matern52"])
def test_means_of_such_fields_turn_or_spread_only(kind: str) -> None:
    rng = np.random.default_rng(104)
    y, Z = rng.normal(size=12), ig.bases.Points(stack(X))
    for kernel, turns in ((DivergenceFree(1.4, 2.0, kind), True), (CurlFree(1.4, 2.0, kind), False)):
        post = ig.condition(kernel, Z, "fitc", 0.1, stack(X), y)
        slopes = post.gradient(stack(XS)).reshape(5, 2, 3)  # (node, component, input)
        divergence, curl = slopes[:, 0, 0] + slopes[:, 1, 1], slopes[:, 1, 0] - slopes[:, 0, 1]
        zero, other = (divergence, curl) if turns else (curl, divergence)
        assert_allclose(zero, 0.0, atol=1e-11)
        assert np.max(np.abs(other)) > 0.1


def test_hyperparameters_of_a_field_are_learned() -> None:
    rng = np.random.default_rng(7)
    nodes = rng.uniform(0.0, 4.0, (60, 2))
    truth = DivergenceFree(1.5, 4.0, "rbf")
    y = ig.prior(truth).sample(stack(nodes), size=8, rng=3).T + 0.1 * rng.normal(size=(120, 8))
    fit = ig.fit(
        DivergenceFree(0.7, 1.0, "rbf"), ig.bases.Points(stack(nodes)), "exact", 0.1, stack(nodes), y
    )
    assert fit.converged
    assert fit.kernel.parameters["lengthscale"] == pytest.approx(1.5, rel=0.1)
    assert fit.kernel.parameters["variance"] == pytest.approx(4.0, rel=0.3)


# Learning from mixtures, against dense formulas.


def mixtures(
    n: int, k: int, *, p: int = 2, spread: float = 3.0, seed: int = 1
) -> tuple[Mixtures, tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, k, p, p))
    A = 0.3 * np.eye(p) + 0.2 * A @ np.swapaxes(A, 2, 3)
    parts = rng.dirichlet(np.ones(k), size=n), spread * rng.normal(size=(n, k, p)), A
    return Mixtures.of(*parts), parts


def exact(
    kernel: Kernel, means_: np.ndarray, A: np.ndarray, m0: Any = 0.0
) -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior mean and covariance at stack(X), and log evidence, of z ~ N(m0, K) seen as N(means; z, A) at
    each node.
    """
    K, n, p = kernel(stack(X[: len(A)]), stack(X[: len(A)])), *A.shape[:2]
    R = np.zeros_like(K)
    for i in range(n):
        R[i * p : i * p + p, i * p : i * p + p] = A[i]
    G = K @ np.linalg.inv(K + R)
    y = means_.ravel() - m0
    return m0 + G @ y, K - G @ K, float(multivariate_normal.logpdf(y, np.zeros(len(y)), K + R))


def test_one_gaussian_at_each_node_is_regression_in_any_order() -> None:
    rng = np.random.default_rng(105)
    t, (_, c, A) = mixtures(6, 1)
    mean, covariance, evidence = exact(WIND, c[:, 0], A[:, 0])
    order = rng.permutation(6)
    online = fields.update(ig.prior(WIND), t, X, order=order)
    settled = fields.expectation_propagation(WIND, t, X, order=order)
    for post in (online, settled):
        assert_allclose(post.mean(stack(X)), mean, rtol=1e-6, atol=1e-7)
        assert_allclose(post.covariance(stack(X)), covariance, atol=1e-6)
        assert_allclose(
            fields.relative_weight(post, t, X), evidence, atol=1e-6
        )  # (5.41) is exact for one Gaussian
    assert online.log_predictive == pytest.approx(evidence, abs=1e-6)
    assert settled.log_evidence == pytest.approx(evidence, abs=1e-6)
    assert settled.sites.converged and settled.sites.n_sweeps <= 3


def online_oracle(
    kernel: Kernel, t: Mixtures, order: Any, m0: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(5.38), node by node, on (alpha, C) over all stacked nodes in the order they were read: the basis,
    alpha and C.
    """
    Z, alpha, C = np.empty((0, 3)), np.zeros(0), np.zeros((0, 0))
    for i in order:
        new = stack(X[i : i + 1])
        k, kss = kernel(Z, new), kernel(new, new)
        _, q, r = t[i : i + 1].tilted((m0[i] + k.T @ alpha)[None], (kss + k.T @ C @ k)[None])
        V = np.concatenate([C @ k, np.eye(2)])
        Z, alpha = np.concatenate([Z, new]), np.pad(alpha, (0, 2)) + V @ q[0]
        C = np.pad(C, (0, 2)) + V @ r[0] @ V.T
    return Z, alpha, C


def test_updates_are_eq_5_38() -> None:
    rng = np.random.default_rng(106)
    t, _ = mixtures(6, 3)
    order = np.array([4, 2, 0, 5, 1, 3])
    background = means.Field(X, rng.normal(size=(6, 2)))
    m0 = unstack(background(stack(X)))
    Z, alpha, C = online_oracle(WIND, t, order, m0)
    post = fields.update(ig.prior(WIND, background), t, X, order=order)
    at = stack(XS)
    K = WIND(at, Z)
    assert_allclose(post.mean(at), background(at) + K @ alpha, atol=2e-7)
    assert_allclose(post.covariance(at), WIND(at, at) + K @ C @ K.T, atol=2e-7)
    mean, covariance = fields.predict(post, XS)
    assert_allclose(mean.ravel(), post.mean(at), atol=1e-12)
    assert_allclose(covariance[2], post.covariance(at)[4:6, 4:6], atol=1e-12)
    halves = fields.update(
        ig.prior(WIND, background), t[order[:3]], X[order[:3]]
    )  # a stream may stop and go on
    again = fields.update(halves, t[order[3:]], X[order[3:]])
    assert_allclose(again.mean(at), post.mean(at), atol=1e-6)
    assert again.log_predictive == pytest.approx(post.log_predictive, abs=1e-6)
    once = fields.expectation_propagation(WIND, t, X, mean=background, order=order, sweeps=1)
    assert_allclose(once.mean(at), post.mean(at), atol=1e-7)


def learned() -> ig.Posterior:
    return fields.expectation_propagation(WIND, mixtures(6, 1)[0], X)


def test_pruning_in_pairs_is_eq_5_42() -> None:
    post = learned()
    alpha, C, Q = post.alpha, post.C, np.linalg.inv(WIND(stack(X), stack(X)))
    scores, divergences = [], []
    for i in range(6):
        gone = np.arange(2 * i, 2 * i + 2)
        stay = np.setdiff1d(np.arange(12), gone)
        CQ = C + Q
        inner, star = np.linalg.inv(CQ[np.ix_(gone, gone)]), CQ[np.ix_(stay, gone)]
        scores.append(0.5 * alpha[gone] @ inner @ alpha[gone])  # (5.43), in KL units
        pruned = post.restrict(stay)
        divergences.append(ig.kl_divergence(pruned, post))
        Qs = Q[np.ix_(stay, gone)]
        assert_allclose(pruned.alpha, alpha[stay] - star @ inner @ alpha[gone], rtol=1e-5, atol=1e-6)
        expected = (
            C[np.ix_(stay, stay)] + Qs @ np.linalg.inv(Q[np.ix_(gone, gone)]) @ Qs.T - star @ inner @ star.T
        )
        assert_allclose(pruned.C, expected, rtol=1e-4, atol=1e-5)
    assert_allclose(fields.removal_scores(post), scores, rtol=1e-6)
    assert_allclose(fields.removal_scores(post, "kl"), divergences, rtol=1e-5)
    least = int(np.argmin(scores))
    five = fields.prune(post, 5)
    assert_allclose(fields.nodes_of(five)[0], np.delete(X, least, axis=0))
    two = post
    for _ in range(4):
        two = fields.prune(two, len(fields.nodes_of(two)[0]) - 1)
    assert_allclose(fields.prune(post, 2).mean(stack(XS)), two.mean(stack(XS)), atol=1e-8)
    assert fields.prune(post, 6) is post


def test_capacity_prunes_as_it_reads() -> None:
    t, _ = mixtures(6, 2)
    post = ig.prior(WIND)
    for i in range(6):
        post = fields.prune(fields.update(post, t[i : i + 1], X[i : i + 1]), 3)
    sparse = fields.update(ig.prior(WIND), t, X, capacity=3)
    assert len(sparse) == 6 and len(fields.nodes_of(sparse)[0]) == 3
    assert_allclose(sparse.mean(stack(XS)), post.mean(stack(XS)), atol=1e-9)


def brute_force(kernel: Kernel, parts: tuple[np.ndarray, ...]) -> list[tuple[float, np.ndarray]]:
    """Log weight and mean of each of the kⁿ Gaussians that the posterior is made of. [004 §5.4.1]"""
    weights, c, A = parts
    n, k = weights.shape
    out = []
    for pick in itertools.product(range(k), repeat=n):
        rows = np.arange(n)
        mean, _, evidence = exact(kernel, c[rows, pick], A[rows, pick])
        out.append((evidence + float(np.sum(np.log(weights[rows, pick]))), mean))
    return out


def test_modes_have_the_weight_that_the_relative_weight_says() -> None:
    """Opposite winds at three nodes near each other: two modes far apart, whose masses enumeration knows.
    [004 eq. 5.40]
    """
    smooth = DivergenceFree(30.0, 20.0) + CurlFree(30.0, 20.0)
    c = np.array([[[8.0, 1.0], [-7.0, -1.0]], [[7.5, 0.0], [-8.0, 0.5]], [[8.0, 0.0], [-7.0, 0.0]]])
    parts = np.array([[0.6, 0.4], [0.5, 0.5], [0.7, 0.3]]), c, np.tile(0.5 * np.eye(2), (3, 2, 1, 1))
    t = Mixtures.of(*parts)
    truth = brute_force(smooth, parts)
    for j in range(2):
        start = fields.FieldSites(t.Lam[:, j], t.b[:, j], 1)
        post = fields.expectation_propagation(smooth, t, X[:3], start=start)
        mine = [(w, m) for w, m in truth if (m[0] > 0) == (j == 0)]
        mass = np.logaddexp.reduce([w for w, _ in mine])
        heaviest = max(mine, key=lambda entry: entry[0])[1]
        assert_allclose(post.mean(stack(X[:3])), heaviest, atol=1e-5)
        assert fields.relative_weight(post, t, X[:3]) == pytest.approx(mass, abs=1e-4)
        assert post.log_evidence == pytest.approx(mass, abs=1e-4)


def test_sweeps_end_where_every_tilted_moment_agrees() -> None:
    """The fixed point of EP: with a node's site taken out, its mixture gives the moments that the process
    has.
    """
    t, parts = mixtures(5, 2, spread=1.0, seed=4)
    post = fields.expectation_propagation(WIND, t, X[:5], sweeps=200, convergence=1e-10)
    assert post.sites.converged
    mean, covariance = fields.predict(post, X[:5])
    precision = np.linalg.inv(covariance)
    cavity = np.linalg.inv(precision - post.sites.Lam)
    centre = np.einsum("nij,nj->ni", cavity, np.einsum("nij,nj->ni", precision, mean) - post.sites.b)
    _, q, r = t.tilted(centre, cavity)
    assert_allclose(centre + np.einsum("nij,nj->ni", cavity, q), mean, atol=1e-6)
    assert_allclose(cavity + cavity @ r @ cavity, covariance, atol=1e-6)
    mass = np.logaddexp.reduce([w for w, _ in brute_force(WIND, parts)])
    assert post.log_evidence == pytest.approx(mass, abs=0.1)  # EP is not exact, but close where modes overlap
    other = fields.expectation_propagation(
        WIND, t, X[:5], order=[4, 2, 0, 1, 3], sweeps=200, damping=0.7, convergence=1e-10
    )
    assert_allclose(other.mean(stack(X)), post.mean(stack(X)), atol=1e-6)


def test_fewer_nodes_in_the_basis_are_fitc_with_blocks() -> None:
    """Gaussian sites on a sparse basis: K is replaced by Q + blockdiag(K - Q), a block for each node."""
    rng = np.random.default_rng(107)
    t, (_, c, A) = mixtures(6, 1)
    nodes = rng.uniform(0.0, 3.0, (3, 2))
    post = fields.expectation_propagation(WIND, t, X, nodes, jitter=1e-12)
    Kuu, Kuf = WIND(stack(nodes), stack(nodes)), WIND(stack(nodes), stack(X))
    Q, K = Kuf.T @ np.linalg.solve(Kuu, Kuf), WIND(stack(X), stack(X))
    D = np.zeros_like(K)
    for i in range(6):
        s = slice(2 * i, 2 * i + 2)
        D[s, s] = K[s, s] - Q[s, s] + A[i, 0]
    at = stack(XS)
    Qs = WIND(at, stack(nodes)) @ np.linalg.solve(Kuu, Kuf)
    assert_allclose(post.mean(at), Qs @ np.linalg.solve(Q + D, c.ravel()), atol=1e-7)
    assert_allclose(post.covariance(at), WIND(at, at) - Qs @ np.linalg.solve(Q + D, Qs.T), atol=1e-7)
    assert post.log_evidence == pytest.approx(
        multivariate_normal.logpdf(c.ravel(), np.zeros(12), Q + D), abs=1e-6
    )


def test_sites_move_to_another_basis() -> None:
    t, _ = mixtures(6, 2)
    full = fields.expectation_propagation(WIND, t, X, sweeps=50)
    moved = fields.expectation_propagation(WIND, t, X, X, start=full.sites, sweeps=1)
    assert_allclose(moved.mean(stack(XS)), full.mean(stack(XS)), atol=1e-5)
    assert moved.sites.n_sweeps == full.sites.n_sweeps + 1


def test_a_field_is_an_ordinary_posterior(tmp_path: Any) -> None:
    rng = np.random.default_rng(108)
    background = means.Field(X, rng.normal(size=(6, 2)))
    post = fields.expectation_propagation(WIND, mixtures(6, 2)[0], X, mean=background)
    files.save(post, tmp_path / "field")
    back = ig.load(tmp_path / "field")
    np.testing.assert_array_equal(back.mean(stack(XS)), post.mean(stack(XS)))
    assert ig.kl_divergence(back, post) == pytest.approx(0.0, abs=1e-9)
    assert ig.kl_divergence(fields.prune(post, 3), post) > 1e-3
    slopes = difference(
        lambda V: float(np.sum(background(np.column_stack([V, stack(XS)[:, -1]])))), stack(XS)[:, :-1], 1e-5
    )
    assert_allclose(background.input_gradient(stack(XS), 0)[:, :-1], slopes, atol=1e-6)
    assert_allclose(unstack(background(stack(X))), background.values, atol=1e-9)


@pytest.mark.parametrize(
    ("act", "error", "says"),
    [
        (lambda t: fields.update(ig.prior(WIND), t, X[:4]), ShapeError, "4 rows"),
        (
            lambda t: fields.update(ig.prior(WIND), t, X, order=[0, 0, 1, 2, 3, 4]),
            ParameterError,
            "permutation",
        ),
        (lambda t: fields.expectation_propagation(WIND, t, X, damping=0.0), ParameterError, "damping"),
        (
            lambda t: fields.expectation_propagation(WIND, t, X, start=fields.FieldSites(t.Lam[0], t.b[0])),
            ShapeError,
            "start",
        ),
        (lambda t: fields.prune(learned(), 0), ParameterError, "capacity"),
        (lambda t: fields.prune(learned().prune(5), 2), ParameterError, "whole nodes"),
        (
            lambda t: Mixtures.of([[1.0]], [[[0.0, 0.0]]], [[[[1.0, 2.0], [2.0, 1.0]]]]),
            FactorisationError,
            "positive definite",
        ),
        (lambda t: Mixtures.of([[0.0]], [[[0.0, 0.0]]], [[np.eye(2)]]), ParameterError, "weights"),
        (
            lambda t: Mixtures.of([[1.0]], [[[0.0, 0.0]]], [[np.eye(2)]], prior_mean=[1.0, 1.0]),
            ParameterError,
            "covariance",
        ),
        (lambda t: Mixtures.of([1.0], [[[0.0, 0.0]]], [[np.eye(2)]]), ShapeError, "do not fit"),
        (lambda t: Mixtures(t.log_c[:, :1], t.b, t.Lam), ShapeError, "do not fit"),
        (lambda t: Mixtures(t.log_c, t.b, t.Lam[:, :1]), ShapeError, "do not fit"),
        (
            lambda t: Mixtures(np.full((1, 1), np.nan), np.zeros((1, 1, 2)), np.zeros((1, 1, 2, 2))),
            NonFiniteError,
            "NaN",
        ),
        (lambda t: t.tilted(np.zeros((2, 2)), np.zeros((2, 2, 2))), ShapeError, "6 vectors"),
        (lambda t: means.Field(X, X[:3]), ShapeError, "positions"),
        (lambda t: means.Field(X, X)(X), ShapeError, "3 input columns"),
        (lambda t: means.Field(X, X)(stack(X, 3)), ParameterError, "0 to 1"),
        (lambda t: means.Field(X[:2], X[:2])(stack(X)), ParameterError, "2 positions"),
    ],
)
def test_bad_input_is_refused(act: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        act(mixtures(6, 2)[0])


def test_a_mixture_wider_than_the_prior_it_is_divided_by_is_refused() -> None:
    A = np.tile(300.0 * np.eye(2), (6, 1, 1, 1))
    wide = Mixtures.of(np.ones((6, 1)), np.zeros((6, 1, 2)), A, np.zeros(2), 0.5 * np.eye(2))
    with pytest.raises(NonFiniteError, match="narrower than the prior"):
        fields.update(ig.prior(WIND), wide, X)
