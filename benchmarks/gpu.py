"""Value and gradient on one GPU: correctness against the CPU, time and memory, beside GPyTorch if it is
installed.

python benchmarks/gpu.py            # needs PyTorch with CUDA; CuPy and GPyTorch are optional
python benchmarks/gpu.py --only times neighbours
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import torch

import inducing as ig
from inducing.inference.regression import approximation_of, gradient_of, problem_of

NAMES = ("sor", "dtc", "vfe", "fitc", "fic", "pitc", "pic", "pep")


def problem(n: int, m: int, d: int, device: str = "cuda", dtype: torch.dtype = torch.float64):
    generator = torch.Generator(device=device).manual_seed(0)
    X = torch.randn((n, d), generator=generator, device=device, dtype=dtype)
    y = (
        torch.sin(X[:, 0])
        + 0.5 * X[:, 1] ** 2
        + 0.1 * torch.randn(n, generator=generator, device=device, dtype=dtype)
    )
    return X, y, X[:m].clone()


def agreement() -> None:
    """Largest relative difference of values and gradients between GPU and CPU."""
    X, y, Z = problem(3000, 64, 3)
    kernel = ig.kernels.RBF([0.8, 1.0, 1.3], 1.4)
    blocks = np.arange(3000) // 75
    arrays = {"torch": (X, y)}
    try:
        import cupy

        arrays["cupy"] = (cupy.asarray(X), cupy.asarray(y))
    except ImportError:
        pass
    for kind, (A, t) in arrays.items():
        worst = {}
        for basis in (
            ig.bases.Points(Z.cpu().numpy()),
            ig.bases.Multiscale(Z.cpu().numpy(), np.full((64, 3), 1.2)),
        ):
            for name in NAMES:
                options = {"blocks": blocks} if name in ("pitc", "pic") else {}
                v0, g0 = ig.log_evidence_and_gradient(
                    kernel, basis, name, 0.02, X.cpu().numpy(), y.cpu().numpy(), **options
                )
                v1, g1 = ig.log_evidence_and_gradient(kernel, basis, name, 0.02, A, t, **options)
                errors = [abs(v1 - v0) / abs(v0)]
                errors += [
                    np.max(np.abs(ig.backend.to_numpy(g1[k]) - g0[k])) / np.max(np.abs(g0[k])) for k in g0
                ]
                worst[f"{name}/{type(basis).__name__}"] = max(errors)
                if name != "pic":
                    p0 = ig.condition(
                        kernel, basis, name, 0.02, X.cpu().numpy(), y.cpu().numpy(), **options
                    ).predict(X.cpu().numpy()[:200])
                    p1 = ig.condition(kernel, basis, name, 0.02, A, t, **options).predict(A[:200])
                    assert type(p1.mean) is type(A)
                    for a, b in zip(p0, p1, strict=True):
                        worst[f"{name}/{type(basis).__name__}/predict"] = np.max(
                            np.abs(a - ig.backend.to_numpy(b))
                        ) / np.max(np.abs(a))
        key = max(worst, key=worst.get)
        print(f"{kind}: largest relative difference to the CPU {worst[key]:.1e} ({key})")


def timed(call, repeats: int = 3) -> tuple[float, float]:
    """Best seconds and peak GiB above what was held before."""
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best, (torch.cuda.max_memory_allocated() - held) / 2**30


def product_rate(size: int = 8192) -> float:
    A = torch.randn(size, size, device="cuda", dtype=torch.float64)
    return 2 * size**3 / timed(lambda: A @ A)[0] / 1e12


def ours(n: int, m: int, d: int, dtype: torch.dtype) -> None:
    X, y, Z = problem(n, m, d, dtype=dtype)
    kernel, basis = ig.kernels.RBF([2.0] * d, 1.4), ig.bases.Points(Z)
    for name in ("vfe", "fitc"):
        seconds, memory = timed(
            lambda name=name: ig.log_evidence_and_gradient(
                kernel, basis, name, 0.02, X, y, jitter=1e-6 if dtype == torch.float64 else 1e-4
            )
        )
        print(
            f"inducing {name:5s} n={n:>9,} m={m} d={d} {str(dtype)[6:]}: {seconds:.3f} s, {memory:.2f} GiB "
            "above the data",
            flush=True,
        )


def small(n: int = 10_000, m: int = 500, d: int = 8) -> None:
    """A problem whose time is launches and waiting, not arithmetic."""
    X, y, Z = problem(n, m, d)
    kernel, basis = ig.kernels.RBF([2.0] * d, 1.4), ig.bases.Points(Z)
    for name in ("vfe", "fitc"):
        P = problem_of(kernel, basis, approximation_of(name), 0.02, X, y, jitter=1e-6)
        seconds = timed(lambda P=P: gradient_of(P), 20)[0]
        print(f"inducing {name:5s} n={n:>9,} m={m} d={d}: {1e3 * seconds:.1f} ms", flush=True)


def fit(n: int = 15_000, m: int = 500, d: int = 8, device: str = "cuda") -> None:
    """A whole fit from NumPy arrays, to the end of its climb; the second, after a short one that warms up."""
    X, y, _ = problem(n + 5_000, m, d, device)
    X, y = X.cpu().numpy(), y.cpu().numpy()
    for name in ("vfe", "fitc"):
        model = ig.SparseGPRegressor(approximation=name, n_inducing=m, kernel="rbf", device=device)
        model.fit(X[: n // 5], y[: n // 5])
        start = time.perf_counter()
        model.fit(X[:n], y[:n])
        seconds = time.perf_counter() - start
        error = float(np.mean((model.predict(X[n:]) - y[n:]) ** 2))
        print(
            f"fit {name:5s} n={n:,} m={m} d={d}: {seconds:.1f} s, {model.n_iter_} iterations, "
            f"mean squared error {error:.4f} (the noise's is .0100)",
            flush=True,
        )


def neighbours(n: int, m: int, d: int, q: int) -> None:
    """One value and gradient along neighbours, beside FITC's; the search is timed apart."""
    X, y, Z = problem(n, m, d)
    for kind in (ig.kernels.RBF, ig.kernels.Matern32):
        kernel, basis = kind([2.0] * d, 1.4), ig.bases.Points(Z)
        for name, count in (("fitc", None), ("neighbours", q)):
            start = time.perf_counter()
            P = problem_of(kernel, basis, approximation_of(name, None, count), 0.02, X, y, jitter=1e-6)
            found = time.perf_counter() - start
            seconds, memory = timed(lambda P=P: gradient_of(P))
            size = f"n={n:,} m={m} d={d} q={count or 0}"
            print(
                f"{kind.__name__} {name} {size}: {seconds:.3f} s, {memory:.2f} GiB; made in {found:.1f} s",
                flush=True,
            )


def single_precision() -> None:
    X, y, Z = problem(100_000, 256, 8)
    kernel = ig.kernels.RBF([2.0] * 8, 1.4)
    for name in ("vfe", "fitc"):
        for jitter in (1e-4, 1e-5, 1e-6):
            v, g = ig.log_evidence_and_gradient(kernel, ig.bases.Points(Z), name, 0.02, X, y, jitter=jitter)
            try:
                v32, g32 = ig.log_evidence_and_gradient(
                    kernel, ig.bases.Points(Z), name, 0.02, X.float(), y.float(), jitter=jitter
                )
                worst = max(float((g32[k].double() - g[k]).abs().max() / g[k].abs().max()) for k in g)
                off = abs(v32 - v) / abs(v)
                print(
                    f"float32 {name} jitter {jitter:g}: value off by {off:.1e}, gradient by {worst:.1e} "
                    "(relative)"
                )
            except ig.errors.InducingError as error:
                print(f"float32 {name} jitter {jitter:g}: {error}")


def gpytorch(n: int, m: int, d: int) -> None:
    try:
        import gpytorch as gp
    except ImportError:
        print("gpytorch is not installed")
        return
    X, y, Z = problem(n, m, d)

    class Model(gp.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(X, y, likelihood)
            self.mean_module = gp.means.ZeroMean()
            base = gp.kernels.ScaleKernel(gp.kernels.RBFKernel(ard_num_dims=d))
            self.covar_module = gp.kernels.InducingPointKernel(
                base, inducing_points=Z.clone(), likelihood=likelihood
            )

        def forward(self, x):
            return gp.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gp.likelihoods.GaussianLikelihood().cuda().double()
    model = Model(likelihood).cuda().double()
    model.train()
    likelihood.train()
    objective = gp.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def call():
        model.zero_grad()
        (-objective(model(X), y)).backward()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds, memory = timed(call, 2)
    print(
        f"gpytorch SGPR n={n:>9,} m={m} d={d} float64: {seconds:.3f} s, {memory:.2f} GiB above the data",
        flush=True,
    )


def profiled(n: int, m: int, d: int) -> None:
    from torch.profiler import ProfilerActivity, profile

    X, y, Z = problem(n, m, d)
    kernel, basis = ig.kernels.RBF([2.0] * d, 1.4), ig.bases.Points(Z)
    for name in ("vfe", "fitc"):
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
            ig.log_evidence_and_gradient(kernel, basis, name, 0.02, X, y, jitter=1e-6)
        print(p.key_averages().table(sort_by="cuda_time_total", row_limit=18, max_name_column_width=60))


def times() -> None:
    for n in (1_000_000, 10_000_000):
        for dtype in (torch.float64, torch.float32):
            ours(n, 1024, 8, dtype)


SECTIONS = {
    "agreement": agreement,
    "single": single_precision,
    "times": times,
    "small": small,
    "fit": fit,
    "neighbours": lambda: neighbours(1_000_000, 512, 8, 20),
    "gpytorch": lambda: gpytorch(1_000_000, 1024, 8),
    "profile": lambda: profiled(1_000_000, 1024, 8),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="agreement only")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="these sections")
    given = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}: float64 products at {product_rate():.1f} TFlop/s")
    every = [name for name in SECTIONS if name != "profile"]
    for name in ["agreement"] if given.quick else given.only or every:
        SECTIONS[name]()


if __name__ == "__main__":
    main()
