"""The experiments of the five seed documents, each a function that fills a `Report`.

`python -m experiments` lists them, `python -m experiments W1 S3 --quick --seed 3` runs two.

[000] Walder, Kim & Schölkopf 2008 (W), [001] Snelson & Ghahramani 2006 (S), [002] Williams 2006 (E), [003]
Quiñonero-Candela & Rasmussen 2005 (Q), [004] Csató 2002 (C); and one of scale (F), which none of them has.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from inducing.errors import UnknownNameError

from .report import Report, timed


@dataclass(frozen=True)
class Experiment:
    """Where an experiment lives: `module.function(report)`."""

    title: str
    source: str
    module: str
    function: str


EXPERIMENTS: dict[str, Experiment] = {
    "W1": Experiment("Gaussians of any width on a one-dimensional toy", "000 Fig 1", "walder_toys", "w1"),
    "W2": Experiment(
        "kin-40k: error against the number of basis functions", "000 Fig 2", "walder_curves", "w2"
    ),
    "W3": Experiment(
        "pumadyn-32nm: error against the number of basis functions", "000 Fig 2", "walder_curves", "w3"
    ),
    "W4": Experiment("How far the widths move from the lengthscale", "000 Fig 2c", "walder_curves", "w4"),
    "W5": Experiment(
        "Multiscale bases in kernel ridge regression and an SVM", "000 §1, §6", "walder_toys", "w5"
    ),
    "S1": Experiment(
        "All pseudo-inputs on the left: FITC's evidence and DTC's", "001 Fig 1", "snelson_toys", "s1"
    ),
    "S2": Experiment("Samples and marginal variances of the two priors", "001 Fig 2", "snelson_toys", "s2"),
    "S3": Experiment(
        "kin-40k: learned pseudo-inputs against selected ones", "001 Fig 3", "snelson_curves", "s3"
    ),
    "S4": Experiment(
        "pumadyn-32nm: learned pseudo-inputs against selected ones", "001 Fig 3", "snelson_curves", "s4"
    ),
    "S5": Experiment(
        "DTC's evidence or FITC's; some inputs random, others learned", "001 §3, §5", "snelson_curves", "s5"
    ),
    "S6": Experiment("Input-dependent noise", "001 Fig 4", "snelson_toys", "s6"),
    "Q1": Experiment("The approximations side by side on one toy", "003 Fig 5", "unifying_view", "q1"),
    "Q2": Experiment(
        "The unifying view as algebra, and what it costs",
        "003 Table 1, Remarks 4-15",
        "unifying_algebra",
        "q2",
    ),
    "Q3": Experiment(
        "The relevance vector machine, and healed by augmentation", "003 §10.2", "relevance_toy", "q3"
    ),
    "Q4": Experiment("PITC with learned inducing inputs", "003 §11", "snelson_curves", "q4"),
    "E1": Experiment("Eigenfunctions of a kernel depend on the input density", "002", "eigen", "e1"),
    "E2": Experiment(
        "SARCOS: subset of data, of regressors, projected process, committee", "002", "sarcos", "e2"
    ),
    "E3": Experiment(
        "Conjugate gradients, and fast products with a kernel matrix", "002", "linear_systems", "e3"
    ),
    "E4": Experiment("Shrinkage, spectra and screening: what is really going on", "002", "eigen", "e4"),
    "C1": Experiment("Online sinc: RBF and polynomial kernels", "004 Fig 2.1", "csato_online", "c1"),
    "C2": Experiment("KL divergence between successive processes", "004 Fig 3.2", "csato_online", "c2"),
    "C3": Experiment("How often the simple removal score errs", "004 Fig 3.4", "csato_online", "c3"),
    "C4": Experiment("How many basis vectors sinc needs", "004 Fig 5.1", "csato_regression", "c4"),
    "C5": Experiment(
        "Friedman 1: error against the number of basis vectors", "004 Fig 5.2", "csato_regression", "c5"
    ),
    "C6": Experiment("Boston housing", "004 Fig 5.3", "csato_regression", "c6"),
    "C7": Experiment("Crabs: orders and sweeps", "004 Fig 5.4", "csato_classification", "c7"),
    "C8": Experiment("Sonar", "004 Fig 5.5", "csato_classification", "c8"),
    "C9": Experiment("USPS: four against the rest", "004 Fig 5.6a", "csato_digits", "c9"),
    "C10": Experiment("USPS: ten classes on one basis", "004 Fig 5.6b", "csato_digits", "c10"),
    "C11": Experiment("USPS: rejecting the doubtful", "004 Fig 5.7", "csato_digits", "c11"),
    "C11b": Experiment(
        "Sweeps, Nyström regression, outliers", "004 Fig 5.4b, §4.5, §3.8", "csato_asides", "c11b"
    ),
    "C12": Experiment("Densities as squares of a process", "004 §5.3, Fig 5.9", "csato_density", "c12"),
    "C13": Experiment("Wind fields from ambiguous measurements", "004 §5.4", "csato_wind", "c13"),
    "C14": Experiment(
        "A mixture of processes on two crossing curves", "004 §6.1, §5.4.3", "csato_outlook", "m1"
    ),
    "C15": Experiment(
        "Likelihood parameters and polynomial orders by evidence", "004 §6.1", "csato_outlook", "c15"
    ),
    "C16": Experiment(
        "Removal: four scores, groups, a diagonal C, the recursion for S",
        "004 §3.1, §5.4.4, D.2, E",
        "csato_removal",
        "c16",
    ),
    "C17": Experiment(
        "Predefined bases, informative rows first, queries", "004 §3.6.1, §3.8.1", "csato_query", "c17"
    ),
    "C18": Experiment(
        "Crabs with polynomials, figure 5.8, exp(-f), ADATAP, sources apart",
        "004 §§4.6, 5.2-5.3, 6.1",
        "csato_more",
        "c18",
    ),
    "C19": Experiment("Wind fields by the forward model itself", "004 §5.4.5", "wind_forward", "c19"),
    "W6": Experiment("Random starts, and -basis against -full", "000 §5", "more_curves", "w6"),
    "S7": Experiment(
        "Interleaved selection, chunks and stochastic gradients, labels", "001 fn 2, §5", "more_curves", "s7"
    ),
    "E5": Experiment(
        "Matérn of any order, sinusoids, storage, greedy or random on SARCOS", "002", "eigen_more", "e5"
    ),
    "Q5": Experiment(
        "SoR's mean with SoD's variance, Laplace, augmentation on a budget, priors on inputs",
        "003 fn 7, §8.1, §9",
        "unifying_more",
        "q5",
    ),
    "Q6": Experiment("The graphs of the approximations", "003 Figs 1-4", "unifying_more", "q6"),
    "F1": Experiment(
        "Three million flights from parquet files", "vega-datasets, flights-3m", "flights", "f1"
    ),
}


def reproduce(
    name: str, *, quick: bool = False, seed: int = 0, folder: Path | str = "experiments/results"
) -> Report:
    """Run one experiment and write its page into `folder`/`name`; other seeds draw other data."""
    if name not in EXPERIMENTS:
        raise UnknownNameError(f"there is no experiment {name!r}; choose from {', '.join(EXPERIMENTS)}")
    entry = EXPERIMENTS[name]
    run = getattr(import_module(f"{__name__}.{entry.module}"), entry.function)
    report = timed(run, Report(name, entry.title, entry.source, quick, seed))
    report.write(Path(folder) / name)
    return report
