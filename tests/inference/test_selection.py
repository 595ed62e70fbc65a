"""Rules for choosing a basis: each against a dense greedy search; all of them with weights, repeats and many
rows.
"""

import numpy as np
import pytest

import inducing as ig
from inducing import errors
from inducing.inference import selection
from inducing.inference.pivots import ProjectedPosterior
from inducing.inference.selection import BY_NAME, merge_repeats, nearest

RULES = pytest.mark.parametrize("name", BY_NAME)
WITH_TARGETS = ("information-gain", "smola-bartlett", "matching-pursuit")
NO_CHANCE = ("variance", "information-gain")  # where no row is drawn, the seed has nothing to decide

X = np.random.default_rng(0).normal(size=(300, 3))
LENGTHSCALE = np.array([0.8, 1.1, 1.5])
KERNEL = ig.kernels.RBF(LENGTHSCALE, 1.3)
NOISE = 0.1


def targets(X):
    return np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2]


def choose(name, X, m, rng=None, weights=None, *, kernel=KERNEL, noise=NOISE, y=None, **options):
    if y is None:
        y = targets(X) if np.ndim(X) == 2 and np.shape(X)[1] == 3 else np.zeros(len(X))
    return BY_NAME[name](X, m, rng, weights, kernel=kernel, noise=noise, y=y, **options)


def row_numbers(X, Z):
    return [int(np.flatnonzero(np.all(X == z, axis=1))[0]) for z in Z]


# What every rule promises.


@RULES
def test_m_different_places_inside_the_data(name):
    Z = choose(name, X, 20, 0)
    assert Z.shape == (20, 3) and len(np.unique(Z, axis=0)) == 20
    assert np.all(Z >= X.min(axis=0)) and np.all(Z <= X.max(axis=0))


@RULES
def test_the_seed_decides(name):
    np.testing.assert_array_equal(choose(name, X, 20, 0), choose(name, X, 20, 0))
    first, second = (choose(name, X, 20, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.array_equal(choose(name, X, 20, 0), choose(name, X, 20, 1)) == (name in NO_CHANCE)


@RULES
def test_no_more_than_there_are_different_rows(name):
    few = np.repeat(X[:7], 4, axis=0)
    np.testing.assert_array_equal(np.sort(choose(name, few, 20, 0), axis=0), np.sort(X[:7], axis=0))
    assert choose(name, X[:1], 1, 0).shape == (1, 3)


@RULES
def test_weights_are_repeated_rows_and_order_is_nothing(name):
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 3, len(X))
    repeated = rng.permutation(np.repeat(X, weights, axis=0))
    np.testing.assert_array_equal(choose(name, X, 20, 0, weights), choose(name, repeated, 20, 0))


@RULES
def test_rows_of_weight_zero_are_not_there(name):
    weights = (X[:, 0] > 0).astype(float)
    assert np.all(choose(name, X, 20, 0, weights)[:, 0] > 0)


@RULES
def test_units_change_nothing_but_units(name):
    units = np.array(
        [4.0, 4.0, 4.0] if name == "kmeans" else [2.0, 4.0, 0.5]
    )  # its distances know no lengthscales
    scaled = choose(name, X * units, 20, 0, kernel=ig.kernels.RBF(LENGTHSCALE * units, 1.3), y=targets(X))
    np.testing.assert_allclose(scaled, choose(name, X, 20, 0) * units, rtol=1e-12)


@RULES
def test_many_rows_are_sampled(name, monkeypatch):
    monkeypatch.setattr(selection, "LOOKED_AT", 50)
    monkeypatch.setattr(selection, "LOOKED_AT_EACH", 2)
    weights = np.where(X[:, 0] > 0, 1.0, 1e-9)
    Z = choose(name, X, 10, 0, weights)
    assert Z.shape == (10, 3) and np.all(Z[:, 0] > 0)
    assert name == "kmeans" or np.all(np.isin(Z[:, 0], X[:, 0]))


@RULES
def test_where_the_kernel_has_too_low_a_rank_the_others_are_random(name):
    kernel = ig.kernels.Linear(1.0)  # of rank 3
    Z = choose(name, X, 10, 0, kernel=kernel)
    assert len(np.unique(Z, axis=0)) == (3 if name == "novelty" else 10)
    if name in NO_CHANCE:
        others = choose(name, X, 10, 1, kernel=kernel)
        np.testing.assert_array_equal(Z[:3], others[:3])
        assert not np.array_equal(Z[3:], others[3:])


@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in ("random", "kmeans")])
def test_rows_come_in_the_order_chosen(name):
    np.testing.assert_array_equal(choose(name, X, 20, 0)[:8], choose(name, X, 8, 0))


@RULES
def test_several_outputs_per_row_noise_and_any_kernel(name):
    Y = np.column_stack([targets(X), X[:, 0]])
    kernel = ig.kernels.Matern52(1.0) + ig.kernels.Linear(0.3, columns=(0,))
    Z = choose(name, X, 20, 0, kernel=kernel, y=Y, noise=np.linspace(0.05, 0.2, len(X)))
    assert Z.shape == (20, 3)


@RULES
@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (errors.ParameterError, (X, 0)),
        (errors.ParameterError, (X, 2.5)),
        (errors.ParameterError, (X, True)),
        (errors.ShapeError, (X[:, 0], 3)),
        (errors.ShapeError, (X, 3, 0, np.ones(5))),
        (errors.EmptyDataError, (X[:0], 3)),
        (errors.EmptyDataError, (X, 3, 0, np.zeros(300))),
        (errors.NonFiniteError, (np.full((4, 2), np.nan), 3)),
    ],
)
def test_bad_input_has_a_named_error(name, error, arguments):
    with pytest.raises(error):
        choose(name, *arguments)


@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in ("random", "kmeans")])
def test_what_a_rule_needs_it_asks_for(name):
    needed = ("kernel", "noise", "y") if name in WITH_TARGETS else ("kernel",)
    given = {"kernel": KERNEL, "noise": NOISE, "y": targets(X)}
    for argument in needed:
        with pytest.raises(errors.ParameterError, match=f"{name}.*{argument}="):
            BY_NAME[name](X, 5, **(given | {argument: None}))
    BY_NAME[name](X, 5, **{argument: given[argument] for argument in needed})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("variance", {"threshold": -0.1}),
        ("variance", {"threshold": 1.0}),
        ("novelty", {"tolerance": -1e-3}),
        ("novelty", {"tolerance": 1.0}),
        ("smola-bartlett", {"candidates": 0}),
        ("matching-pursuit", {"candidates": 2.5}),
        ("matching-pursuit", {"cache": 0}),
    ],
)
def test_bad_options_have_a_named_error(name, options):
    with pytest.raises(errors.ParameterError):
        choose(name, X, 5, **options)


def test_as_many_are_new_as_a_polynomial_has_dimensions_though_variances_differ_by_far():
    """k(x, x) of POL-10 goes from 1 to 1e20 on [-10, 10]; all streams need 11 rows (by rational numbers)."""
    kernel = ig.kernels.Polynomial(10)
    for seed in range(20):
        x = np.random.default_rng(seed).uniform(-10.0, 10.0, (150, 1))
        assert len(selection.novelty(x, 100, rng=seed, kernel=kernel)) == 11
        assert len(ig.update(ig.prior(kernel), ig.likelihoods.Gaussian(0.01), x, x[:, 0], None, 1e-6)) == 11


@pytest.mark.parametrize("name", WITH_TARGETS)
def test_bad_targets_and_noise_have_a_named_error(name):
    with pytest.raises(errors.ShapeError):
        choose(name, X, 5, y=np.ones(4))
    with pytest.raises(errors.NonFiniteError):
        choose(name, X, 5, y=np.full(300, np.inf))
    with pytest.raises(errors.NoiseError):
        choose(name, X, 5, noise=0.0)


# Each rule against its criterion, written with dense matrices and solves.

SMALL = X[:60]
D = np.random.default_rng(5).uniform(0.05, 0.3, 60)  # noise of each row
Y = np.column_stack([targets(SMALL), np.cos(SMALL[:, 1])])
K = KERNEL(SMALL, SMALL) + 0.3 * np.outer(SMALL[:, 0], SMALL[:, 0])  # with unequal variances: no ties
DENSE_KERNEL = KERNEL + ig.kernels.Linear(0.3, columns=(0,))


def greedy(score, m):
    """The rows that greedy search picks, trying every row that is left."""
    chosen = []
    for _ in range(m):
        left = [i for i in range(len(K)) if i not in chosen]
        scores = [score(chosen, i) for i in left]
        chosen.append(left[int(np.argmax(scores))])
    return chosen


def residual_variance(chosen, i):
    k = K[chosen, i]
    return K[i, i] - k @ np.linalg.solve(K[np.ix_(chosen, chosen)], k)


def kl(mean1, S1, mean0, S0):
    """KL(N(mean1, S1) || N(mean0, S0))."""
    P0 = np.linalg.inv(S0)
    logs = np.linalg.slogdet(S0)[1] - np.linalg.slogdet(S1)[1]
    return 0.5 * (np.trace(P0 @ S1) - len(S1) + logs + (mean1 - mean0) @ P0 @ (mean1 - mean0))


def gain(chosen, i):
    """KL(new || old) over u of the chosen rows and i: old sees y_i through the chosen ones, new sees f_i
    itself.
    """
    u = [*chosen, i]
    Kuu = K[np.ix_(u, u)]
    P = np.zeros((len(K), len(u)))  # E[f | u] = P u under the old basis
    P[:, :-1] = np.linalg.solve(K[np.ix_(chosen, chosen)], K[chosen]).T
    total = 0.0
    for y in Y.T:
        posteriors = []
        for own in (True, False):
            A = P.copy()
            if own:
                A[i] = np.eye(len(u))[-1]
            S = np.linalg.inv(np.linalg.inv(Kuu) + A.T @ (A / D[:, None]))
            posteriors += [S @ (A.T @ (y / D)), S]
        total += kl(*posteriors)
    return total


def best_objective(chosen):
    """min over alpha of ½ alpha' (Kuu + Kuf D⁻¹ Kfu) alpha - alpha' Kuf D⁻¹ y, summed over outputs. [003
    §4]
    """
    Kfu, Kuu = K[:, chosen], K[np.ix_(chosen, chosen)]
    b = Kfu.T @ (Y / D[:, None])
    return -0.5 * np.sum(b * np.linalg.solve(Kuu + Kfu.T @ (Kfu / D[:, None]), b))


def one_step_objective(chosen, i):
    """The same with alpha of the chosen rows held at its best, and only that of row i free."""
    Kfu, Kuu = K[:, chosen], K[np.ix_(chosen, chosen)]
    alpha = np.linalg.solve(Kuu + Kfu.T @ (Kfu / D[:, None]), Kfu.T @ (Y / D[:, None]))
    slope = K[i] @ ((Y - Kfu @ alpha) / D[:, None]) - K[i, chosen] @ alpha
    return -0.5 * np.sum(slope**2) / (K[i, i] + K[i] @ (K[i] / D))


def chosen_by(name, m, rng=0, **options):
    Z = choose(name, SMALL, m, rng, kernel=DENSE_KERNEL, noise=D, y=Y, **options)
    return row_numbers(SMALL, Z)


def test_variance_is_the_largest_residual():
    assert chosen_by("variance", 25) == greedy(residual_variance, 25)


def test_variance_stops_at_the_threshold():
    m = len(chosen_by("variance", 60, threshold=0.05))
    chosen = greedy(residual_variance, m)
    shares = [sum(residual_variance(chosen[:j], i) for i in range(60)) / np.trace(K) for j in (m - 1, m)]
    assert shares[1] <= 0.05 < shares[0]
    assert chosen_by("variance", 60, threshold=0.05) == chosen
    assert len(chosen_by("variance", m - 2, threshold=0.05)) == m - 2
    assert len(chosen_by("variance", 60, threshold=1e-13)) <= 60


def test_threshold_counts_weights():
    weights = np.where(SMALL[:, 0] > 0, 1.0, 1e-6)
    Z = choose("variance", SMALL, 60, 0, weights, threshold=0.02)
    C = KERNEL(SMALL, Z) @ np.linalg.solve(KERNEL(Z, Z), KERNEL(Z, SMALL))
    assert 1.3 * weights.sum() - weights @ np.diag(C) <= 0.02 * 1.3 * weights.sum()
    assert len(Z) != len(choose("variance", SMALL, 60, 0, threshold=0.02))


def test_information_gain_is_the_kl_divergence():
    assert chosen_by("information-gain", 12) == greedy(gain, 12)


def test_information_gain_score_is_the_kl_divergence():
    P = ProjectedPosterior(DENSE_KERNEL, SMALL, Y, 1.0 / D, 10)
    for i in (3, 17, 40, 41):
        P.add(i)
    free = [i for i in range(60) if i not in P.chosen]
    squares = np.sum((P.Y - P.mean) ** 2, axis=1)
    scores = selection.gain(P.residual[free], P.variance[free], D[free], squares[free], 2)
    np.testing.assert_allclose(scores, [gain(P.chosen, i) for i in free], rtol=1e-7)


def test_smola_bartlett_is_the_largest_decrease():
    chosen = chosen_by("smola-bartlett", 15, candidates=60)
    assert chosen == greedy(lambda chosen, i: -best_objective([*chosen, i]), 15)


def test_smola_bartlett_takes_the_best_of_its_subset():
    generator, chosen = np.random.default_rng(7), []
    rows = np.lexsort(SMALL.T[::-1])  # the order in which rows are drawn
    for _ in range(10):
        free = [j for j in range(60) if rows[j] not in chosen]
        tried = rows[np.sort(generator.choice(free, 9, replace=False))]
        chosen.append(int(tried[np.argmin([best_objective([*chosen, i]) for i in tried])]))
    assert chosen_by("smola-bartlett", 10, 7, candidates=9) == chosen


def test_matching_pursuit_is_the_largest_decrease_in_one_coordinate():
    chosen = chosen_by("matching-pursuit", 15, candidates=60)
    assert chosen == greedy(lambda chosen, i: -one_step_objective(chosen, i), 15)


def test_matching_pursuit_keeps_the_best_losers():
    generator, chosen, pool = np.random.default_rng(7), [], []
    rows = np.lexsort(SMALL.T[::-1])
    for _ in range(12):
        free = [j for j in range(60) if rows[j] not in chosen and rows[j] not in pool]
        count = 11 - len(pool)  # 6 in the cache, 5 fresh ones
        pool += list(rows[np.sort(generator.choice(free, count, replace=False))])
        pool.sort(key=lambda i: one_step_objective(chosen, i))
        chosen.append(int(pool[0]))
        pool = pool[1:7]
    assert chosen_by("matching-pursuit", 12, 7, candidates=5, cache=6) == chosen


@pytest.mark.parametrize("name", ["smola-bartlett", "matching-pursuit", "information-gain"])
def test_looking_at_targets_beats_chance(name):
    best = best_objective(chosen_by(name, 12))
    assert best < min(best_objective(chosen_by("random", 12, seed)) for seed in range(20))


def test_novelty_is_the_residual_in_one_pass():
    rows = np.lexsort(SMALL.T[::-1])[np.random.default_rng(3).permutation(60)]
    for tolerance, m in ((0.1, 60), (0.02, 60), (0.02, 8)):
        chosen = []
        for i in rows:
            if len(chosen) < m and residual_variance(chosen, i) > tolerance * K[i, i]:
                chosen.append(int(i))
        assert chosen_by("novelty", m, 3, tolerance=tolerance) == chosen
        assert m == 8 or 8 < len(chosen) < 60


def test_novelty_finds_no_more_than_the_feature_space_has():
    """Rows crowd in a tenth of the period: 17 of them only just span all dimensions."""
    kernel = ig.kernels.Trigonometric(8)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x = np.concatenate([rng.uniform(0.0, 0.1, 200), rng.uniform(0.0, 1.0, 40)])[:, None]
        assert len(selection.novelty(x, 100, rng=seed, kernel=kernel)) <= 17
        stream = rng.permutation(x)
        assert (
            len(ig.update(ig.prior(kernel), ig.likelihoods.Gaussian(0.01), stream, stream[:, 0], None, 1e-6))
            <= 17
        )


@pytest.mark.parametrize("name", WITH_TARGETS)
def test_equal_inputs_are_one_observation_of_their_average(name):
    """Two rows at one place, of precisions 1/a and 1/b, say what one of precision 1/a + 1/b says of f."""
    rng = np.random.default_rng(2)
    Xr, yr, noise = np.repeat(SMALL, 2, axis=0), rng.normal(size=120), rng.uniform(0.1, 1.0, 120)
    precision = 1.0 / noise.reshape(60, 2)
    total = precision.sum(axis=1)
    mean = np.sum(precision * yr.reshape(60, 2), axis=1) / total
    once = choose(name, SMALL, 10, 0, noise=1.0 / total, y=mean)
    np.testing.assert_array_equal(choose(name, Xr, 10, 0, noise=noise, y=yr), once)


def test_kmeans_spreads_better_than_chance():
    def distortion(Z):
        return np.mean(np.min(np.sum((X[:, None] - Z) ** 2, axis=2), axis=1))

    assert distortion(choose("kmeans", X, 20, 0)) < 0.8 * distortion(choose("random", X, 20, 0))


# By name, from the estimator and the command line.


@RULES
def test_the_estimator_takes_every_name(name):
    y = targets(X)
    m = ig.SparseGPRegressor(n_inducing=25, inducing=name, max_iter=100, random_state=0).fit(X, y)
    assert m.basis_size_ == 25 and m.score(X, y) > 0.5
    start = ig.SparseGPRegressor(n_inducing=25, inducing=name, optimize=None, random_state=0).fit(X, y)
    Z = start.posterior_.basis.Z * start.x_scale_ + start.x_mean_
    assert name == "kmeans" or np.all(np.min(np.abs(X[None, :, 0] - Z[:, :1]), axis=1) < 1e-12)


@pytest.mark.parametrize("name", WITH_TARGETS)
def test_the_estimator_gives_rules_what_the_prior_mean_leaves(name):
    options = {"n_inducing": 25, "inducing": name, "optimize": None, "random_state": 0, "standardize": False}
    options |= {"kernel": KERNEL, "noise": NOISE}
    plain = ig.SparseGPRegressor(**options).fit(X, targets(X))
    shifted = ig.SparseGPRegressor(**options, mean=ig.means.Constant(4.0)).fit(X, targets(X) + 4.0)
    np.testing.assert_array_equal(plain.posterior_.basis.Z, shifted.posterior_.basis.Z)


def test_the_estimator_says_when_fewer_are_new():
    x = np.linspace(0.0, 1.0, 200)[:, None]
    with pytest.warns(errors.ReducedBasisWarning, match=r"'novelty' found only \d+"):
        model = ig.SparseGPRegressor(n_inducing=90, inducing="novelty", max_iter=5, random_state=0).fit(
            x, x[:, 0]
        )
    assert model.basis_size_ < 90
    moved = np.abs(model.posterior_.basis.Z * model.x_scale_ + model.x_mean_ - x.T).min(axis=1) > 1e-6
    assert np.any(moved)  # they are not all there is, so they are learned


def test_unknown_names_are_an_error_that_lists_the_known():
    with pytest.raises(errors.UnknownNameError, match="random, kmeans, variance, information-gain"):
        ig.SparseGPRegressor(inducing="greedy").fit(X, targets(X))


def test_the_command_line_takes_names(tmp_path):
    from typer.testing import CliRunner

    from inducing.cli import app

    table, model = tmp_path / "t.csv", tmp_path / "m.st"
    rows = np.column_stack([X, targets(X)])
    np.savetxt(table, rows, delimiter=",", header="a,b,c,y", comments="")
    command = [
        "fit",
        str(table),
        "--target",
        "y",
        "--out",
        str(model),
        "-m",
        "15",
        "--max-iter",
        "3",
        "--inducing",
    ]
    assert CliRunner().invoke(app, [*command, "information-gain"]).exit_code == 0
    assert ig.load(model).inducing is not None
    failed = CliRunner().invoke(app, [*command, "greedy"])
    assert failed.exit_code == 1 and "smola-bartlett" in failed.output


# The tools beside the rules.


def test_merged_rows_are_sorted_and_counted():
    table = np.array([[1.0, 2.0], [0.0, 5.0], [1.0, -1.0], [1.0, 2.0], [-0.0, 5.0]])
    rows, weights = merge_repeats(table, np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    np.testing.assert_array_equal(rows, [[0.0, 5.0], [1.0, -1.0], [1.0, 2.0]])
    np.testing.assert_array_equal(weights, [7.0, 3.0, 5.0])
    rows, weights = merge_repeats(X, np.ones(300))
    np.testing.assert_array_equal(rows, X[np.argsort(X[:, 0])])


def test_nearest():
    Z = X[:5]
    np.testing.assert_array_equal(nearest(X, Z), np.argmin(np.sum((X[:, None] - Z) ** 2, axis=2), axis=1))


def test_weights_count_once_where_rows_are_drawn_by_them(monkeypatch):
    """Of many rows some are drawn in proportion to their weights; they then count alike, or weights would
    count twice.
    """
    monkeypatch.setattr(selection, "LOOKED_AT", 2000)
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(0.0, 0.1, 20_000), rng.normal(10.0, 0.1, 20_000)])[:, None]
    weights = np.where(rows[:, 0] < 5.0, 3.0, 1.0)
    drawn, counts = selection._sample(rows, 1, np.random.default_rng(1), weights)
    assert np.all(counts == 1.0)
    assert np.mean(rows[drawn] < 5.0) == pytest.approx(0.75, abs=0.03)
    centre = selection.kmeans(rows, 1, 0, weights)[0, 0]
    assert centre == pytest.approx(2.5, abs=0.3)  # 1.0 if they counted twice
