"""Streams: how many rows a second, how many digits after how many rows, how much memory.

    python benchmarks/streams.py                      # everything; the 10 million rows take some minutes
    python benchmarks/streams.py --only speed         # speed, digits, drift, memory, forgetting, command
    python benchmarks/streams.py --quick              # seconds, small: does it all work?

The rate of a line is the best of several rounds on one core. Times are this machine's.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe
from report import table

import inducing as ig
from inducing.inference.online import Learner
from inducing.model.likelihoods import Gaussian, Laplace, Likelihood, Probit, StudentT

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # the plain loops of the thesis

CAPACITY, D, NOISE = 100, 10, 0.01
UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss


@dataclass(frozen=True)
class Plan:
    """How large, how often."""

    rows: int = 20_000
    rounds: int = 3
    replayed: int = 10_000
    drifting: int = 1_000_000
    streamed: int = 10_000_000
    piped: int = 100_000


QUICK = Plan(rows=600, rounds=1, replayed=300, drifting=5_000, streamed=100_000, piped=3_000)


def inputs(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, D))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)


def speed(plan: Plan) -> str:
    """Updates a second of one process with 100 basis functions of 10 inputs."""
    rng, kernel = np.random.default_rng(0), ig.kernels.RBF(2.0)
    X, y = inputs(plan.rows, rng)
    full = ig.update(ig.prior(kernel), Gaussian(NOISE), *inputs(500, rng), CAPACITY)
    growing = np.where(np.arange(plan.rows) % 2, 1.0, -1.0) * 1.01 ** np.arange(
        plan.rows
    )  # each row outweighs the last
    cases: list[tuple[str, str, Likelihood, np.ndarray, dict[str, Any]]] = [
        ("rows project", "40,000", Gaussian(NOISE), y, {"tolerance": 0.9}),
        ("rows project, after a look at the scores", "40,000", Gaussian(NOISE), y, {}),
        ("rows replace a function", "15,000", Gaussian(NOISE), growing, {}),
        ("rows project, score kl", "", Gaussian(NOISE), y, {"score": "kl"}),
        ("rows replace a function, score kl", "", Gaussian(NOISE), growing, {"score": "kl"}),
        ("on a basis that stays", "", Gaussian(NOISE), y, {"grow": False}),
        ("probit", "", Probit(), np.sign(y), {}),
        ("Laplace", "", Laplace(0.1), y, {}),
        ("Student-t", "", StudentT(4.0, 0.1), y, {}),
    ]
    lines = []
    for name, wanted, likelihood, target, options in cases:
        rule = {"capacity": CAPACITY, "tolerance": 1e-6, "score": "mean", "grow": True} | options
        best, learner = np.inf, None
        for _ in range(plan.rounds + 1):  # the first one may compile
            learner = Learner([full], likelihood, D, **rule)
            best = min(best, timed(learner.read, X, target[:, None, None]))
        assert learner is not None
        shares = ", ".join(
            f"{n / plan.rows:.0%} {what}" for n, what in zip(learner.events, ("project", "grow", "replace"))
        )
        lines.append((name, shares, f"{plan.rows / best:,.0f}", wanted))
    kinds: dict[str, dict[str, Any]] = {
        "OnlineGPRegressor": {},
        "half_life=1000, noise fixed": {"half_life": 1000, "fixed": ("noise",)},
        "half_life=1000": {"half_life": 1000},
        "half_life='auto'": {"half_life": "auto"},
    }
    for size in (1000, 1):
        best = dict.fromkeys(kinds, np.inf)
        n = min(plan.rows, 2000 * size)
        for _ in range(plan.rounds):
            for name, options in kinds.items():  # in turns: another's load falls on all alike
                model = ig.OnlineGPRegressor(kernel, CAPACITY, noise=NOISE, optimize=None, **options)
                model.fit(X[:600], y[:600])

                def feed(model: Any = model, size: int = size, n: int = n) -> None:
                    for i in range(0, n, size):
                        model.partial_fit(X[i : i + size], y[i : i + size])

                best[name] = min(best[name], timed(feed))
        for name in kinds:
            share = best["OnlineGPRegressor"] / best[name]
            lines.append((f"{name}, batches of {size}", f"{share:.0%}", f"{n / best[name]:,.0f}", ""))
    return table(("stream", "what its rows do", "rows/s", "wanted"), lines)


def digits(plan: Plan) -> str:
    """A stream that keeps changing its basis, replayed with 19 digits by the plain loops."""
    import oracle_online

    X, y = oracle_online.growing_stream(plan.replayed, 2)

    def extended(A: Any, B: Any) -> Any:
        E = (A[:, None, :] - B[None, :, :]) / np.longdouble(1.2)
        return np.exp(-np.sum(E * E, axis=2) / 2)

    noise = oracle_online.gaussian(np.longdouble(NOISE))
    reference = oracle_online.Online(extended, noise, 20, 1e-6, dtype=np.longdouble, inverse_every=40)
    for i in range(len(X)):
        reference.read(X[i], y[i], i)
    learner = Learner([ig.prior(ig.kernels.RBF(1.2))], Gaussian(NOISE), 2, 20, 1e-6, "mean", True)
    learner.read(X, y[:, None, None])
    post = learner.posteriors()[0]
    same = np.array_equal(post.basis.Z, reference.Z.astype(float))
    pairs = (post.alpha, reference.alpha), (post.C, reference.C)
    errors = [float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in pairs]
    row = (
        f"{plan.replayed:,}",
        f"{learner.events[2]:,}",
        "yes" if same else "NO",
        *(f"{e:.1e}" for e in errors),
    )
    return table(("rows", "replaced", "same basis", "error of α", "error of C"), [row])


def drift(plan: Plan) -> str:
    """How far Q = K⁻¹ is from it after many updates that are never corrected."""
    rng, kernel = np.random.default_rng(0), ig.kernels.RBF(2.0)
    learner = Learner([ig.prior(kernel)], Gaussian(NOISE), D, CAPACITY, 1e-6, "mean", True)
    for start in range(0, plan.drifting, 50_000):
        n = min(50_000, plan.drifting - start)
        X, _ = inputs(n, rng)
        y = np.where(np.arange(n) % 2, 1.0, -1.0) * 1.0003 ** ((start + np.arange(n)) % 10**6)
        learner.read(X, y[:, None, None])
    post = learner.posteriors()[0]
    K, Linv = kernel(post.basis.Z, post.basis.Z), np.linalg.inv(post.L)
    row = (
        f"{plan.drifting:,}",
        f"{learner.events[2]:,}",
        f"{np.max(np.abs(Linv.T @ Linv @ K - np.eye(len(K)))):.1e}",
        "1e-6",
    )
    return table(("rows", "replaced", "max abs(QK - I)", "at most"), [row])


def memory(plan: Plan) -> str:
    """Peak memory of a stream that is made as it is read, after a tenth of it and at its end."""
    rng, chunk = np.random.default_rng(0), 20_000
    post, start, peaks = ig.prior(ig.kernels.RBF(2.0)), time.perf_counter(), []
    for done in range(0, plan.streamed, chunk):
        post = ig.update(post, Gaussian(NOISE), *inputs(chunk, rng), 50)
        if done + chunk >= plan.streamed // 10:
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT)
    rate = plan.streamed / (time.perf_counter() - start)
    peak, growth = peaks[0] / 2**20, (peaks[-1] - peaks[0]) / 2**20
    row = f"{plan.streamed:,}", f"{len(post)}", f"{peak:.1f} MiB", f"{growth:.2f} MiB", f"{rate:,.0f}"
    return table(
        ("rows", "functions", "peak after a tenth", "growth from there", "rows/s, made and read"), [row]
    )


def forgetting(plan: Plan) -> str:
    """A long stream that forgets. On a basis that stays, its last 10,000 rows, a hundred half-lives, are
    replayed with 19 digits; on one that changes, Q = K⁻¹ is compared with K.
    """
    import oracle_online

    rng, half_life, every, chunk = np.random.default_rng(0), 100, 50, 10_000
    kernel, Z = ig.kernels.RBF(1.2), rng.uniform(-2, 2, (20, 2))
    learner = Learner(
        [ig.prior(kernel, basis=ig.bases.Points(Z))], Gaussian(NOISE), 2, None, 1e-6, "mean", False
    )
    start, peaks = time.perf_counter(), []
    for done in range(0, plan.streamed, chunk):
        X = rng.uniform(-2, 2, (chunk, 2))
        y = np.sin(2 * X[:, 0] + done) * X[:, 1] + 0.1 * rng.standard_normal(chunk)
        for i in range(0, chunk, every):
            learner.forget([0.5 ** (every / half_life)])
            learner.read(X[i : i + every], y[i : i + every, None, None])
        if done + chunk >= plan.streamed // 10:
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT)
    rates = [plan.streamed / (time.perf_counter() - start)]
    extended = np.longdouble

    def k(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        E = (A[:, None, :].astype(extended) - B[None, :, :].astype(extended)) / extended(1.2)
        return np.exp(-np.sum(E * E, axis=2) / 2)

    Kinv, M, h = oracle_online.inverse(k(Z, Z)), np.zeros((20, 20), extended), np.zeros(20, extended)
    rho = extended(2) ** (-extended(every) / extended(half_life))
    for i in range(0, chunk, every):
        e = Kinv @ k(Z, X[i : i + every])
        M, h = rho * M + e @ e.T / extended(NOISE), rho * h + e @ y[i : i + every] / extended(NOISE)
    S = oracle_online.inverse(Kinv + M)
    post = learner.posteriors()[0]
    B = post.L @ post.A
    pairs = ((post.L @ post.w)[:, 0], S @ h), (B @ B.T, S)
    digits = [float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in pairs]
    growth = [(peaks[-1] - peaks[0]) / 2**20]

    model = ig.OnlineGPRegressor(ig.kernels.RBF(2.0), 50, half_life=1000, noise=NOISE, optimize=None)
    start, peaks = time.perf_counter(), []
    for done in range(0, plan.streamed, 20_000):
        X, y = inputs(20_000, rng)
        model.partial_fit(X, y + np.sin(done))
        if done + 20_000 >= plan.streamed // 10:
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT)
    rates.append(plan.streamed / (time.perf_counter() - start))
    growth.append((peaks[-1] - peaks[0]) / 2**20)
    post = model.posterior_
    K, Linv = post.kernel(post.basis.Z, post.basis.Z), np.linalg.inv(post.L)
    drifted = float(np.max(np.abs(Linv.T @ Linv @ K - np.eye(len(K)))))
    columns = "basis", "rows", "growth of memory after a tenth", "error", "rows/s, made and read"
    errors = f"{digits[0]:.1e} of the mean, {digits[1]:.1e} of S", f"{drifted:.1e} of QK - I"
    lines = [
        (name, f"{plan.streamed:,}", f"{growth[i]:.2f} MiB", errors[i], f"{rates[i]:,.0f}")
        for i, name in enumerate(("20 functions that stay", "50 functions that change"))
    ]
    return table(columns, lines)


def command(plan: Plan) -> str:
    """`inducing stream` on a CSV file, with predictions written: seconds of a long file less those of a short
    one.
    """
    X, y = inputs(plan.piped, np.random.default_rng(0))
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for n in (plan.piped // 4, plan.piped):
            path = Path(folder) / f"{n}.csv"
            np.savetxt(
                path,
                np.column_stack([X, y])[:n],
                delimiter=",",
                header=",".join([*"abcdefghij", "y"]),
                comments="",
            )
            line = [
                "stream",
                str(path),
                "-t",
                "y",
                "-o",
                f"{path}.gp",
                "-p",
                f"{path}.out",
                "--save-rows",
                "1000000",
            ]
            call = [sys.executable, "-c", "from inducing.cli import main; main()", *line]
            seconds.append(timed(lambda call=call: subprocess.run(call, check=True, capture_output=True)))
    rate = (plan.piped - plan.piped // 4) / max(seconds[1] - seconds[0], 1e-9)
    return table(
        ("rows", "seconds in all", "rows/s"), [(f"{plan.piped:,}", f"{seconds[1]:.1f}", f"{rate:,.0f}")]
    )


SECTIONS: dict[str, Callable[[Plan], str]] = {
    f.__name__: f for f in (speed, digits, drift, memory, forgetting, command)
}


def timed(call: Callable[..., Any], *arguments: Any) -> float:
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="some of the sections"
    )
    chosen = parser.parse_args()
    print(describe() + "\n")
    for name in chosen.only:
        section = SECTIONS[name]
        print(f"## {name}\n\n{section.__doc__}\n\n{section(QUICK if chosen.quick else Plan())}", flush=True)


if __name__ == "__main__":
    main()
