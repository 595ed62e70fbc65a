"""Faults in the middle of things: kill -9 of fits, streams, saves and workers, full disks, folders that
cannot be written, too little memory, threads and forks. Nothing may be lost or left behind, and results must
be those of undisturbed runs.

python benchmarks/faults.py                      # all of them, 20 times each; minutes
python benchmarks/faults.py streams saves --runs 100
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import inducing as ig
from inducing.sources import distributed

ITERATIONS = 8


def parquet(folder: Path, n: int, parts: int) -> ig.sources.Source:
    """Rows in files, a part each."""
    import pandas as pd

    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    y = np.sin(X @ [1.0, 2.0, 0.5]) + 0.3 * rng.standard_normal(n)
    for i, rows in enumerate(np.array_split(np.arange(n), parts)):
        pd.DataFrame(np.column_stack([X, y])[rows], columns=["a", "b", "c", "y"]).to_parquet(
            folder / f"{i:03}.parquet"
        )
    return ig.as_source(folder, "y")


def fit(source: ig.sources.Source, m: int) -> ig.Fit:
    kernel, Z = ig.kernels.RBF([0.9, 0.8, 1.0]), np.random.default_rng(1).uniform(-2, 2, (m, 3))
    return ig.fit(kernel, ig.bases.Points(Z), "vfe", 0.2, source, max_iterations=ITERATIONS, progress=False)


class Killer:
    """Counts the parts that are done, of all passes of a fit; after so many of them a worker process gets
    SIGKILL.
    """

    def __init__(self, pid: int | None = None, after: int | None = None) -> None:
        self.pid, self.after, self.done = pid, after, 0

    def __call__(self, done: int, parts: int | None) -> None:
        self.done += 1
        if self.pid is not None and self.done == self.after:
            os.kill(self.pid, signal.SIGKILL)


def same(a: ig.Fit, b: ig.Fit) -> float:
    """The largest relative difference of value, hyperparameters and basis."""
    pairs = [(a.value, b.value), (a.noise, b.noise), (a.basis.parameters["Z"], b.basis.parameters["Z"])]
    pairs += [(a.kernel.parameters[name], b.kernel.parameters[name]) for name in a.kernel.parameters]
    return max(float(np.max(np.abs(np.subtract(p, q))) / np.max(np.abs(q))) for p, q in pairs)


def workers(runs: int, rng: np.random.Generator) -> int:
    """Kill a Dask worker in the middle of each fit; returns how many fits differ from the undisturbed one."""
    rows, functions = 200_000, 64
    right = hits = 0
    with tempfile.TemporaryDirectory() as folder, distributed.cluster(workers=2) as client:
        source = distributed.spread(parquet(Path(folder), rows, 16), client)
        fit(source, functions)  # compiles
        counted = Killer()
        expected = fit(source.watched(counted), functions)
        for run in range(runs):
            client.wait_for_workers(2)
            killer = Killer(
                int(rng.choice(sorted(client.run(os.getpid).values()))), int(rng.integers(1, counted.done))
            )
            gap = same(fit(source.watched(killer), functions), expected)
            gone = killer.pid not in client.run(os.getpid).values()
            hits, right = hits + gone, right + (gap == 0.0)
            print(f"  run {run + 1}: {'killed' if gone else 'not killed'}, difference {gap:.1e}", flush=True)
    return runs - right


def _killed(arguments: list[str], after: float, number: int = signal.SIGKILL) -> int:
    """Run a Python program and send it a signal after some seconds; returns its exit code."""
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            process.wait(timeout=after)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        return process.wait()


def _left(folder: Path) -> list[Path]:
    """Temporary files that nobody writes any longer."""
    return [path for path in folder.iterdir() if path.name.startswith(".")]


COMMAND = "import sys; from inducing.cli import main; main()"
SAVE = """
import sys, inducing as ig
from inducing.files.models import save
model = ig.load(sys.argv[1])
print("ready", flush=True)
while True:
    save(model, sys.argv[1])
"""


def _stream_table(folder: Path, rows: int) -> Path:
    x = np.sort(np.random.default_rng(2).uniform(-3, 3, rows))
    path = folder / "rows.csv"
    path.write_text("x,y\n" + "".join(f"{v:.6f},{np.sin(v):.6f}\n" for v in x))
    return path


CHANGING = "--half-life auto --on-drift forget --relearn 4000".split()


def streams(runs: int, rng: np.random.Generator) -> int:
    """Kill a stream again and again until it has read its file: one that forgets nothing, one with experts,
    drift and a memory; what it has then must be what one run has.
    """
    return sum(_stream_killed(runs, rng, options) for options in ([], CHANGING))


def _stream_killed(runs: int, rng: np.random.Generator, options: list[str]) -> int:
    lost = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = _stream_table(folder, 30_000)

        def command(model: str) -> list[str]:
            files = ["-o", str(folder / model), "-p", str(folder / f"{model}.csv")]
            rule = ["--resume", "--save-rows", "500", "--n-inducing", "20", *options]
            return ["-c", COMMAND, "stream", str(table), "-t", "y", *files, *rule]

        assert _killed(command("first"), 600.0) == 0  # compiles
        start = time.perf_counter()
        assert _killed(command("whole"), 600.0) == 0
        lost += len(_differences(folder, "first"))
        whole = time.perf_counter() - start
        kills = finished = 0
        while kills < runs or not finished:
            limit = float(rng.uniform(0.3, 1.0)) * whole if kills < runs else 600.0
            if _killed(command("cut"), limit) == 0:  # at the file's end: the next one begins again
                finished += 1
                differ = [*_differences(folder, "cut"), *(f"{path.name} left" for path in _left(folder))]
                lost += len(differ)
                if differ:
                    print(f"  after {kills} kills: {', '.join(differ)}", flush=True)
                (folder / "cut").unlink()
                (folder / "cut.csv").unlink()
                continue
            kills += 1
            if (folder / "cut").exists():
                ig.load(folder / "cut")  # whole at every moment
            else:  # killed before its first save: what it wrote belongs to no model, and would be refused
                (folder / "cut.csv").unlink(missing_ok=True)
        told = f"{kills} kills of a stream of {whole:.1f} s that came to its end {finished} times"
        print(f"  {told}, {lost} lost {' '.join(options)}", flush=True)
    return lost


def _differences(folder: Path, model: str) -> list[str]:
    """What of a stream's model and predictions differs from those of the run that was not disturbed."""
    one, two = ig.load(folder / "whole"), ig.load(folder / model)
    ways: dict[str, Callable[[ig.OnlineGPRegressor], object]] = {
        "means": lambda m: m.posterior_.w.tobytes(),
        "covariances": lambda m: m.posterior_.A.tobytes(),
        "half-lives": lambda m: m.half_lives_,
        "drifts": lambda m: m.drifts_,
        "noise": lambda m: m.noise_,
        "kernel": lambda m: m.kernel_.spec(),
    }
    found = [name for name, part in ways.items() if part(one) != part(two)]
    same = (folder / "whole.csv").read_bytes() == (folder / f"{model}.csv").read_bytes()
    return found if same else [*found, "predictions"]


def saves(runs: int, rng: np.random.Generator) -> int:
    """Kill a process that saves one model all the time: the file is whole at every moment."""
    lost = 0
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "m"
        X = np.linspace(0, 1, 300)[:, None]
        model = ig.SparseGPRegressor(n_inducing=150, max_iter=1, random_state=0).fit(X, np.sin(9 * X[:, 0]))
        model.save(path)
        for _ in range(runs):
            process = subprocess.Popen([sys.executable, "-c", SAVE, str(path)], stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(float(rng.uniform(0.0, 0.3)))
            process.kill()
            process.wait()
            process.stdout.close()
            lost += not np.array_equal(ig.load(path).posterior_.w, model.posterior_.w)
        model.save(path)
        lost += len(_left(Path(name)))
    return lost


def fits(runs: int, rng: np.random.Generator) -> int:
    """Kill or interrupt `inducing fit` at random moments: no torn model, and Ctrl-C leaves one
    from the first checkpoint on.
    """
    lost = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = _stream_table(folder, 2000)
        before = table.read_bytes()
        command = [
            "-c",
            COMMAND,
            "fit",
            str(table),
            "-t",
            "y",
            "-o",
            str(folder / "m"),
            "-m",
            "100",
            "--checkpoint",
            str(folder / "c"),
        ]
        assert _killed(command, 600.0) == 0  # compiles
        start, kills = time.perf_counter(), 0
        assert _killed(command, 600.0) == 0
        whole = time.perf_counter() - start
        for run in range(runs):
            for file in ("m", "c"):
                (folder / file).unlink(missing_ok=True)
            number = (signal.SIGKILL, signal.SIGINT)[run % 2]
            code = _killed(command, float(rng.uniform(0.5, 0.95)) * whole, number)
            if (folder / "m").exists():
                ig.load(folder / "m")
            learning = (folder / "c").exists()
            lost += number == signal.SIGINT and learning and not (folder / "m").exists()
            kills += code == -signal.SIGKILL
            print(f"  run {run + 1}: signal {number}, exit code {code}, learning {learning}", flush=True)
        assert _killed(command, 600.0) == 0
        lost += table.read_bytes() != before or len(_left(folder)) > 0
        print(f"  {kills} kills, {runs // 2} interrupts of a fit of {whole:.1f} s", flush=True)
    return lost


def disk(runs: int, rng: np.random.Generator) -> int:
    """Let writes fail after some bytes, as on a full disk: the old file stays, and nothing beside it."""
    lost = 0
    _, _, model = _small()
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "m"
        size = model.save(path)
        before = path.read_bytes()
        for _ in range(runs):
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(rng.integers(0, size)), resource.RLIM_INFINITY))
            try:
                model.save(path, {"more": 1})
                lost += 1
            except ig.errors.ModelFileError:
                pass
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            lost += path.read_bytes() != before or len(list(Path(name).iterdir())) != 1
    signal.signal(signal.SIGXFSZ, ignored)
    return lost


def _in_child(work: Callable[[], bool], patience: float = 120.0) -> bool:
    """Whether some work in a forked process ends within some seconds and says yes."""
    child = os.fork()
    if child == 0:
        answer = "false"
        try:
            answer = "true" if work() else "false"
        finally:
            os.execvp(answer, [answer])
    end = time.monotonic() + patience
    while (status := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    return status[1] == 0


def _small() -> tuple[np.ndarray, np.ndarray, ig.SparseGPRegressor]:
    X = np.linspace(0, 1, 100)[:, None]
    y = np.sin(9 * X[:, 0])
    return X, y, ig.SparseGPRegressor(n_inducing=20, max_iter=3, random_state=0).fit(X, y)


def folders(runs: int, rng: np.random.Generator) -> int:
    """Save and checkpoint into a folder that cannot be written: the one is an error, the other a warning."""
    lost = 0
    X, y, model = _small()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "m"
        model.save(path)
        before, here = path.read_bytes(), folder / "c"

        def work() -> bool:
            if os.getuid() == 0:
                os.setuid(65534)  # who is root may write everywhere
            try:
                model.save(path, {"more": 1})
                return False
            except ig.errors.ModelFileError:
                pass
            again = ig.SparseGPRegressor(n_inducing=20, max_iter=3, random_state=0, checkpoint=str(here))
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                again.fit(X, y)
            return bool(told) and np.array_equal(again.predict(X), model.predict(X))

        folder.chmod(0o555)
        for _ in range(runs):
            lost += not _in_child(work)
            lost += path.read_bytes() != before or len(list(folder.iterdir())) != 1
        folder.chmod(0o755)
    return lost


def memory(runs: int, rng: np.random.Generator) -> int:
    """Fit, predict and save with little more memory than is used: a model, or an error and what was there."""
    lost, short = 0, 0
    _, _, model = _small()
    X = np.random.default_rng(3).uniform(-2, 2, (20_000, 2))
    y = np.sin(X[:, 0]) * X[:, 1]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "m"
        model.save(path)
        before = path.read_bytes()
        larger = ig.SparseGPRegressor(n_inducing=100, max_iter=1, random_state=0).fit(X, y)

        def work() -> bool:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))
            try:
                larger.fit(X, y).predict(X[:3000], return_cov=True)  # 69 MiB
                larger.save(path)
            except (MemoryError, ig.errors.InducingError):
                return path.read_bytes() == before
            return path.read_bytes() != before

        for _ in range(runs):
            more = int(rng.uniform(0.0, 500.0) * 2**20)
            lost += not _in_child(work)
            short += path.read_bytes() == before
            lost += len(_left(Path(name)))
            ig.load(path)
            model.save(path)
            before = path.read_bytes()
    print(f"  {short} of {runs} had too little")
    return lost


def threads(runs: int, rng: np.random.Generator) -> int:
    """Predict and save from several threads while the process forks: every answer is the same."""
    X = np.linspace(0, 1, 200)[:, None]
    model = ig.SparseGPRegressor(n_inducing=20, max_iter=1, random_state=0).fit(X, np.sin(9 * X[:, 0]))
    expected, few, wrong = model.predict(X), model.predict(X[:5]), []
    with tempfile.TemporaryDirectory() as name:

        def work() -> None:
            for _ in range(runs):
                if not np.array_equal(model.predict(X), expected):
                    wrong.append(1)
                model.save(Path(name) / "m")

        pool = [threading.Thread(target=work) for _ in range(4)]
        for thread in pool:
            thread.start()
        for _ in range(min(runs, 10)):
            child = os.fork()
            if child == 0:
                answer = "true" if np.array_equal(model.predict(X[:5]), few) else "false"
                os.execvp(answer, [answer])
            end = time.monotonic() + 20.0
            while (status := os.waitpid(child, os.WNOHANG)) == (0, 0):
                if time.monotonic() > end:
                    os.kill(child, signal.SIGKILL)
                    wrong.append(1)
                    end += 20.0
                time.sleep(0.01)
            wrong += [1] * (status[1] != 0)
        for thread in pool:
            thread.join()
        return len(wrong) + len(_left(Path(name)))


FAULTS: dict[str, Callable[[int, np.random.Generator], int]] = {
    "saves": saves,
    "disk": disk,
    "folders": folders,
    "memory": memory,
    "threads": threads,
    "streams": streams,
    "fits": fits,
    "workers": workers,
}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("faults", nargs="*", help=f"of {', '.join(FAULTS)}; all by default")
    options.add_argument("--runs", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    told = options.parse_args()
    failed = 0
    for name in told.faults or FAULTS:
        start = time.perf_counter()
        lost = FAULTS[name](told.runs, np.random.default_rng(told.seed))
        failed += lost
        print(
            f"{name}: {told.runs} runs, {lost} lost or left, {time.perf_counter() - start:.0f} s", flush=True
        )
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
