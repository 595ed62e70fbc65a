"""One library in one long-lived process that obeys commands, a line of JSON each, and sleeps in between.

    python worker.py serve NAME      # commands on stdin, answers on stdout
    python worker.py cold NAME       # import, fit the small problem, predict, print the mean's error, end

`Worker` is the other end of the line. Only one worker computes at a time; before the next one starts, the
last one's threads must have come to rest, which is looked up, not assumed.
"""

from __future__ import annotations

import gc
import json
import os
import select
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peers
from problems import Data, curve, make, make_small

QUERIES = 100_000
CHUNKS = (1_000, 5_000, 20_000, QUERIES)  # each library predicts with the fastest of these
RESTED = 0.02  # of one core: what an idle process may use


class Server:
    """The commands; each is a method whose arguments and answer are plain JSON."""

    def __init__(self, name: str) -> None:
        self.library = peers.LIBRARIES[name]()
        self.calls: dict[str, Callable[[], Any]] = {}
        self.data: Data | None = None

    def hello(self) -> dict[str, Any]:
        return {key: getattr(self.library, key) for key in ("version", "rows", "value_only", "predicts")}

    def load(self, n: int, m: int, d: int) -> float:
        self.drop()
        self.data = make(n, m, d)
        return self.data.checksum

    def drop(self) -> None:
        self.calls.clear()
        self.data = None
        gc.collect()

    def build(self, row: str) -> None:
        assert self.data is not None
        self.calls[row] = self.library.gradient(self.data, row)

    def prepare(self, row: str) -> dict[str, float]:
        """Build the problem of this row and run it once: compiled, warmed up."""
        self.build(row)
        return {"value": float(self.calls[row]())}

    def prepare_prediction(self, row: str, queries: int) -> dict[str, Any]:
        """Condition, and find the number of rows at a time that suits this library."""
        assert self.data is not None
        predict = self.library.predictor(self.data, row)
        X = np.random.default_rng(1).standard_normal((queries, self.data.X.shape[1]))

        def whole(chunk: int) -> Any:
            return [predict(X[i : i + chunk]) for i in range(0, queries, chunk)]

        seconds = {}
        for chunk in [c for c in CHUNKS if c < queries] + [queries]:
            whole(chunk)  # compiles for this shape
            seconds[chunk] = timed(lambda chunk=chunk: whole(chunk))
            if seconds[chunk] > 20:
                break  # slow enough to know
        best = min(seconds, key=seconds.__getitem__)
        mean, variance = (np.concatenate([np.ravel(part[i]) for part in whole(best)]) for i in (0, 1))
        self.calls[f"predict {row}"] = lambda: whole(best)
        return {"chunk": best, "mean": float(mean.mean()), "variance": float(variance.mean())}

    def prepare_query(self, row: str) -> int:
        """One query at a time; row "compiled" is this package's compiled predictor."""
        assert self.data is not None
        points = np.random.default_rng(1).standard_normal((1000, self.data.X.shape[1]))
        if row == "compiled":
            predict, queries = self.library.compiled(self.data), list(points)  # type: ignore[attr-defined]
        else:
            predict, queries = self.library.predictor(self.data, row), [x[None] for x in points]
        predict(queries[0])
        self.calls[f"query {row}"] = lambda: [predict(x) for x in queries[: self.count]]
        self.count = 1
        self.count = int(np.clip(0.3 / timed(self.calls[f"query {row}"]), 3, 1000))
        return self.count

    def time_query(self, row: str, least: float) -> float:
        """Seconds of one query, on average over a run of them."""
        return self.time(f"query {row}", least) / self.count

    def time(self, call: str, least: float) -> float:
        """Seconds of one call; short calls are repeated until `least` seconds have passed, and the best
        counts.
        """
        function = self.calls[call]
        best = total = timed(function)
        while total < least:
            seconds = timed(function)
            best, total = min(best, seconds), total + seconds
        return best

    def peak(self, call: str) -> float:
        """Bytes of memory that one call takes at most, above what the process held before."""
        gc.collect()
        before = reset_peak()
        self.calls[call]()
        return peak() - before

    def product(self, size: int = 3000) -> float:
        """Flop/s of NumPy's float64 matrix product on all cores, over about half a second as the calls it is
        held against.
        """
        A = np.random.default_rng(0).standard_normal((size, size))
        return 2 * size**3 / min(timed(lambda: A @ A) for _ in range(3))

    def blas_threads(self) -> list[Any]:
        import scipy.linalg  # noqa: F401  (with a BLAS of its own, which is to be seen from the first call on)
        from threadpoolctl import threadpool_info

        return sorted([Path(i["filepath"]).name, i["num_threads"]] for i in threadpool_info())


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def reset_peak() -> float:
    """Forget the largest memory so far, where the system allows it; returns what is held now, in bytes."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmRSS")
    except OSError:
        return peak()


def peak() -> float:
    try:
        return _status("VmHWM")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith(key + ":"))


def serve(name: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints does not get in between
    try:
        server: Any = Server(name)
        answer: dict[str, Any] = {"ok": server.hello()}
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers)
        return
    print(json.dumps(answer), file=answers)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        try:
            answer = {"ok": getattr(server, command)(*arguments)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        print(json.dumps(answer), file=answers)


def cold(name: str) -> None:
    data = make_small()
    predict = peers.LIBRARIES[name]().fit_small(data)
    X = np.linspace(0.2, 9.8, 500)[:, None]
    error = np.ravel(predict(X)[0]) - curve(X)
    os.write(1, f"\nerror {np.sqrt(np.mean(error**2)):.6f}\n".encode())


class WorkerFailed(Exception):
    """A command that this library could not carry out, and why."""


class Worker:
    """The near end of a worker process."""

    def __init__(self, name: str, python: str, log: Path, *, patience: float = 300.0) -> None:
        self.name, self.patience = name, patience
        self.busiest_rest = 0.0  # of one core, the most used while it should have been idle
        command = [python, str(Path(__file__).resolve()), "serve", name]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("a"),
            text=True,
            bufsize=1,
            env=environment(name),
        )
        hello = self._answer()
        self.version: str = hello["version"]
        self.rows, self.value_only, self.predicts = hello["rows"], hello["value_only"], hello["predicts"]

    def __call__(self, command: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([command, *arguments]) + "\n")
        except OSError as error:
            raise WorkerFailed("the process has ended") from error
        answer = self._answer()
        self._rest()
        return answer

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        # seconds are counted, not read from a clock: a virtual machine may stand still for minutes
        if not any(select.select([self.process.stdout], [], [], 1.0)[0] for _ in range(int(self.patience))):
            self.process.kill()
            raise WorkerFailed(f"over {self.patience:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise WorkerFailed("the process died (of memory?)")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(answer["error"])
        return answer["ok"]

    def _rest(self) -> None:
        """Wait until the worker's threads sleep: OpenMP's spin for some tenths of a second after their
        work.
        """
        used = 1.0
        for _ in range(20):
            before = self._cpu_seconds()
            time.sleep(0.05)
            used = (self._cpu_seconds() - before) / 0.05
            if used < RESTED:
                break
        self.busiest_rest = max(self.busiest_rest, used)

    def _cpu_seconds(self) -> float:
        tasks = Path(f"/proc/{self.process.pid}/task")
        total = 0.0
        for task in tasks.iterdir() if tasks.exists() else ():
            try:
                total += int((task / "schedstat").read_text().split()[0]) * 1e-9
            except (OSError, IndexError):
                continue  # a thread that has ended
        return total

    def close(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def cold_start(name: str, python: str, patience: float) -> tuple[float, str]:
    """Seconds of a whole process that fits the small problem, and the error of its mean."""
    command = [python, str(Path(__file__).resolve()), "cold", name]
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment(name)
    )
    for _ in range(int(patience)):
        try:
            output, _ = process.communicate(timeout=1.0)
            taken = time.perf_counter() - start
            break
        except subprocess.TimeoutExpired:
            continue
    else:
        process.kill()
        process.wait()
        raise WorkerFailed(f"over {patience:.0f} s")
    if process.returncode != 0:
        raise WorkerFailed(f"exit status {process.returncode}")
    return taken, output.rsplit("error ", 1)[1].strip()


def environment(name: str) -> dict[str, str]:
    """The caller's, with this repository's package for its own worker and nothing extra for the peers'."""
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if name == peers.OURS:
        variables["PYTHONPATH"] = str(Path(__file__).resolve().parents[1] / "src")
    return variables


if __name__ == "__main__":
    {"serve": serve, "cold": cold}[sys.argv[1]](sys.argv[2])
