"""The small parts of the engine, each by itself: sums of workers, groups of blocks, what is kept between
passes, sweeps and where they start.
"""

import inspect
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import inducing as ig
from inducing.engine import compiled_passes, evidence, neighbour_tiles, site_loops, sums
from inducing.engine.several import factorise_jointly
from inducing.engine.sums import Work, groups
from inducing.engine.sweeps import Process, SiteMemory, converge, start_of
from inducing.inference.neighbours import with_neighbours
from inducing.inference.regression import approximation_of, problem_of
from inducing.model.likelihoods import LearnedNoise, Probit
from inducing.model.likelihoods.loops import Asked
from inducing.model.problem import Problem, make_problem
from inducing.model.table import TABLE, VFE
from inducing.numerics.blas import addresses

RNG = np.random.default_rng(0)
N = 60
X = RNG.uniform(-2.0, 2.0, (N, 2))
Y = np.sin(X @ [1.0, 2.0]) + 0.3 * RNG.standard_normal(N)
LABELS = np.where(Y > 0.0, 1.0, -1.0)
KERNEL = ig.kernels.RBF([0.8, 0.9], 1.3)


def points(m: int) -> ig.bases.Points:
    return ig.bases.Points(np.random.default_rng(m).uniform(-2.0, 2.0, (m, 2)))


def problem(name: Any = "fitc", **options: Any) -> Any:
    return problem_of(KERNEL, points(5), name, 0.1, X, Y, **options)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_the_sums_of_all_workers_are_added(workers: int) -> None:
    P = problem()
    states = [Work(P, True, True) for _ in range(workers)]
    given = np.random.default_rng(workers).standard_normal((workers, 5, 5))
    for state, G in zip(states, given, strict=True):
        state.G[...] = G
        state.b += 1.0
    total = Work.total(states)
    assert_allclose(total.G, np.sum(given, axis=0), rtol=1e-12)
    assert_array_equal(total.b, np.full((5, 1), float(workers)))


@pytest.mark.parametrize("count", [1, 3, 4, 12, 30])
def test_groups_have_about_equally_many_rows(count: int) -> None:
    P = problem("pitc", blocks=np.arange(N) // 5)
    found = groups(P, count)
    assert [group.first for group in found] == np.cumsum([0] + [len(g.parts) for g in found[:-1]]).tolist()
    assert_array_equal(np.concatenate([group.rows for group in found]), np.arange(N))
    assert [len(group.rows) for group in found] == [N // min(count, 12)] * min(count, 12)


@pytest.mark.parametrize(("blocks", "count", "workers"), [(20, 8, 2), (20, 12, 4), (15, 8, 2)])
def test_workers_that_take_turns_get_as_many_blocks(blocks: int, count: int, workers: int) -> None:
    P = problem("pitc", blocks=np.arange(N) * blocks // N)
    found = groups(P, count)
    lengths = [sum(len(group.rows) for group in found[t::workers]) for t in range(workers)]
    assert max(lengths) - min(lengths) <= N // blocks
    assert_array_equal(np.sort(np.concatenate([group.rows for group in found])), np.arange(N))


def test_blocks_are_kept_between_passes_where_they_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_passes, "LEAST", 0)
    P = problem("pitc", blocks=np.minimum(np.arange(N) // 5, 10))  # blocks of 5, and one of 10 rows
    room = 16 * N * 10  # twice the numbers of the largest block for each row
    values = []
    for size, kept in ((room, True), (room - 1, False)):
        monkeypatch.setattr(compiled_passes, "BLOCK_BYTES", size)
        F = evidence.factorise(P)
        assert F.kept is not None and F.kept.runs is not None and F.kept.blocks is not None
        numbers = sum(Ks.size for Ks, _ in F.kept.runs.values())
        assert numbers == (10 * 5**2 + 10**2 if kept else 0) and sorted(F.kept.blocks) == [*range(11)] * kept
        values.append(evidence.gradient_from(P, F))
    assert_allclose(values[0][0], values[1][0], rtol=1e-12)
    for name, slope in values[0][1].items():
        assert_allclose(values[1][1][name], slope, rtol=1e-9, atol=1e-12)


def test_neighbours_are_kept_between_passes_where_they_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_passes, "LEAST", 0)
    P, calls = with_neighbours(problem(approximation_of("neighbours", neighbours=4))), []
    first = neighbour_tiles.first_near

    def counted(*arguments: Any) -> Any:
        calls.append(len(arguments))
        return first(*arguments)

    counted.name = first.name  # type: ignore[attr-defined]
    monkeypatch.setattr(neighbour_tiles, "first_near", counted)
    values = []
    for size, kept in ((1 << 30, True), (1, False)):
        monkeypatch.setattr(compiled_passes, "BLOCK_BYTES", size)
        calls.clear()
        F = evidence.factorise(P)
        made = len(calls)
        assert F.kept is not None and F.kept.runs is not None and made > 0
        assert len(F.kept.runs) == (made if kept else 0)
        values.append(evidence.gradient_from(P, F))
        assert len(calls) == (made if kept else 2 * made)  # made again where it was not kept
    assert_allclose(values[0][0], values[1][0], rtol=1e-12)
    for name, slope in values[0][1].items():
        assert_allclose(values[1][1][name], slope, rtol=1e-9, atol=1e-12)


# Sweeps.


def contraction(share: float, level: float) -> tuple[Process, Any, list[bool]]:
    """The prior, and sweeps that leave a share of the way to the process with τ = ν = level of one row."""
    start = Process({}, np.zeros((1, 1)), np.zeros((1, 1))).factored()
    goal = np.full((1, 1), level)
    flags: list[bool] = []

    def run(process: Process, rate: float, safe: bool) -> tuple[Process, float, float]:
        flags.append(safe)
        aim = [old + (1.0 - share) * rate * (goal - old) for old in (process.G, process.b)]
        return Process({}, *aim), 0.0, 0.0

    return start, run, flags


def test_sweeps_are_mixed_from_the_first_on() -> None:
    """A tenth of the way in each sweep: alone they would take more than a hundred."""
    start, run, _ = contraction(0.9, 50.0)
    point = converge(start, run, power=1.0, safely=False, tolerance=1e-8, sweeps=100)
    assert point.converged and point.n_sweeps < 15
    assert_allclose([point.process.B, point.process.w], [[[51.0]], [[50.0 / 51.0]]], rtol=1e-6)


def test_safe_sweeps_end_near_the_process_or_after_ten() -> None:
    start, run, flags = contraction(0.01, 3.0)
    assert converge(start, run, power=1.0, safely=True, tolerance=1e-8, sweeps=50).converged
    assert flags[:2] == [True, True] and not any(flags[2:]) and len(flags) > 2  # 3, then 0.03 / 4
    start, run, flags = contraction(0.999, 1e4)
    converge(start, run, power=1.0, safely=True, tolerance=1e-8, sweeps=12)
    assert flags == [True] * 10 + [False] * 2


def test_sweeps_and_several_processes_start_from_the_prior() -> None:
    """B = I, w = 0, a column of each, and nothing of the evidence."""
    P = make_problem(KERNEL, points(5), VFE, Probit(), X, LABELS)
    prior = evidence.prior_factors(P)
    start = start_of(P, prior.Linv, None)
    assert prior.base == 0.0 and start.sites == {}
    for process in (prior, start):
        assert_array_equal(process.B, np.eye(5))
        assert_array_equal(process.LBinv, np.eye(5))
        assert_array_equal(process.w, np.zeros((5, 1)))
    assert_array_equal(start.b, np.zeros((5, 1)))


def test_a_row_that_no_function_reaches_is_even_odds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its features are 0 and DTC keeps nothing of R, so its f is 0, be features kept or made again."""
    arguments = KERNEL, points(5), "dtc", Probit()
    near = ig.log_evidence(*arguments, X, LABELS)
    for room in (1 << 26, 0):
        monkeypatch.setattr(sums, "PHI_BYTES", room)
        value = ig.log_evidence(*arguments, np.append(X, [[1e3, 1e3]], axis=0), np.append(LABELS, 1.0))
        assert value == pytest.approx(near + np.log(0.5), rel=1e-7)


def test_a_hundred_sweeps_are_allowed() -> None:
    for function in (ig.condition, ig.log_evidence, ig.log_evidence_and_gradient):
        assert inspect.signature(function).parameters["sweeps"].default == 100


@pytest.mark.parametrize("power", ["fitc", "vfe"])
def test_a_memory_serves_a_basis_of_its_size_alone(power: str) -> None:
    def factors(m: int, memory: SiteMemory | None) -> evidence.Factors:
        P = make_problem(KERNEL, points(m), TABLE[power], Probit(), X, LABELS)
        return evidence.factorise(P, memory=memory)

    memory = SiteMemory()
    first, again = factors(5, memory), factors(5, memory)
    assert first.point is not None and again.point is not None
    assert again.point.n_sweeps <= 2 < first.point.n_sweeps
    other, cold = factors(7, memory), factors(7, None)
    assert_allclose(other.w, cold.w, atol=1e-5)
    assert len(memory.process.w) == 7


def test_a_memory_of_several_processes_serves_bases_of_their_sizes_alone() -> None:
    def problems(m: int) -> list[Problem]:
        return [make_problem(KERNEL, points(m), VFE, LearnedNoise(), X, Y) for _ in range(2)]

    memory = SiteMemory()
    first, again = (factorise_jointly(problems(5), memory=memory) for _ in range(2))
    assert first.converged and again.n_sweeps <= 2 < first.n_sweeps
    other, cold = factorise_jointly(problems(6), memory=memory), factorise_jointly(problems(6))
    assert other.value == pytest.approx(cold.value, rel=1e-6)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_row_without_a_cavity_gives_up_what_doubles_its_variance(share: float) -> None:
    """Its site is t in τ and n in ν of φᵀv; what is left of it acts as 1 - u of that, u t s = ½."""
    m, tau, nu, gamma = 3, 2.5, 0.7, 0.4
    rng = np.random.default_rng(1)
    A, phi, w = rng.standard_normal((m, m)), rng.standard_normal(m), rng.standard_normal(m)
    S = A @ A.T + np.eye(m)
    t, n = (value / (1.0 + share * tau * gamma) for value in (tau, nu))
    s = phi @ S @ phi
    assert t * s > 1.0  # without it there would be no variance left
    u = 0.5 / (t * s)
    left = np.linalg.inv(np.linalg.inv(S) - u * t * np.outer(phi, phi))
    mean = left @ (np.linalg.solve(S, w) - u * n * phi)
    assert phi @ left @ phi == pytest.approx(2.0 * s)
    rows = site_loops.RowSites(*(np.array([value]) for value in (tau, nu, gamma, 0.0, 1.0)))
    asked = Asked(Probit())
    given = addresses(), S, w, phi[None].copy(), np.empty((0, m)), rows, share, asked.at, asked.theta
    assert site_loops.sweep_rows(*given, 1.0, 64) == (1, np.inf)
    assert_allclose(S, left, rtol=1e-10)
    assert_allclose(w, mean, rtol=1e-10)
    acts = 1.0 + share * rows.tau[0] * gamma
    assert_allclose([rows.tau[0] / acts, rows.nu[0] / acts], [(1.0 - u) * t, (1.0 - u) * n], rtol=1e-10)
