"""Pages of learning curves: lists of jobs, and records turned into claims, tables and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .curves import Job, Record, Store, exact_job
from .report import Report

ITERATIONS, LONG = 1000, 4000  # the latter are as many as 000 has
QUICK_ROWS, QUICK_ITERATIONS, QUICK_SIZES = 600, 30, {10: 1, 20: 1}
RULES = {"info-gain": "information-gain", "smo-bart": "smola-bartlett"}
SMALL_NOISE = (
    "The data have hardly any noise. The score of info-gain is then ruled by squared residuals over a tiny "
    "variance: it takes the rows fitted worst, and needs many of them before it passes a random choice."
)
RELEVANT = {4, 5, 15, 16}  # pumadyn-32nm's inputs that matter, counted from one

Series = dict[int, list[float]]  # by number of basis functions, one value for each seed

STYLES = {  # of the curves: colour, marker, line
    "spgp-full": ("#1f6fb4", "o", "-"),
    "spgp-basis": ("#1f6fb4", "s", "--"),
    "vsgp-full": ("#c8442f", "o", "-"),
    "vsgp-basis": ("#c8442f", "s", "--"),
    "info-gain": ("#7a7a7a", "^", "-"),
    "smo-bart": ("#2b2b2b", "v", "-"),
    "random": ("#b0a060", "x", "-"),
    "random, FITC": ("#b0a060", "+", "--"),
}
SPARE = ("#4a9a5a", "#8a5ab0", "#d08a20", "#2a9aa0", "#a05050")


def learned(
    report: Report,
    data: str,
    methods: tuple[str, ...],
    sizes: dict[int, int],
    iterations: int = ITERATIONS,
    **options: Any,
) -> list[Job]:
    """The jobs of these methods, a number of seeds for each size."""
    if report.quick:
        sizes, iterations, options = QUICK_SIZES, QUICK_ITERATIONS, options | {"rows": QUICK_ROWS}
    return [
        Job(data, name, m, seed, iterations, **options)
        for name in methods
        for m in sizes
        for seed in report.seeds(sizes[m])
    ]


def selected(
    report: Report, data: str, rules: dict[str, str], sizes: Iterable[int], row: str = "dtc", seeds: int = 1
) -> list[Job]:
    """The jobs whose inducing inputs are rows of the data, chosen by rules; hyperparameters held."""
    sizes, rows, seeds = (QUICK_SIZES, QUICK_ROWS, 1) if report.quick else (sizes, 0, seeds)
    sizes = list(sizes)
    names = rules.values()
    return [
        Job(data, f"selected-{row}", m, s, start=rule, rows=rows)
        for rule in names
        for m in sizes
        for s in report.seeds(seeds)
    ]


def exact_records(store: Store, report: Report, data: str, seeds: int) -> list[Record]:
    rows, seeds = (QUICK_ROWS, 1) if report.quick else (0, seeds)
    return store.all(exact_job(data, seed, rows) for seed in report.seeds(seeds))


def settings(report: Report, data: str, exact: list[Record], iterations: int) -> str:
    names = {"kin40k": ("kin-40k", 10000, 30000), "pumadyn32nm": ("pumadyn-32nm", 7168, 1024)}
    name, rows, tests = names[data]
    rows, tests = (QUICK_ROWS, QUICK_ROWS) if report.quick else (rows, tests)
    return (
        f"{name}, {rows} training and {tests} test rows, standardised. {iterations} L-BFGS iterations from "
        "lengthscales √d, variance 1 and noise 0.1. Hyperparameters that are held are an exact GP's on "
        f"{exact[0]['job']['m']} random rows. A seed draws those rows and the start of the inducing inputs. "
        "Values are medians over the seeds, with the range."
    )


def series(records: Iterable[Record], value: str = "smse", **fields: Any) -> Series:
    """The values of the records whose jobs have these fields."""
    found: Series = {}
    for record in records:
        if all(record["job"][name] == wanted for name, wanted in fields.items()):
            found.setdefault(record["job"]["m"], []).append(record[value])
    return dict(sorted(found.items()))


def ratios(first: Series, second: Series, sizes: Iterable[int] | None = None) -> dict[int, float]:
    """The median over the seeds of the first as a multiple of the second's, at the sizes both have."""
    common = [m for m in first if m in second and (sizes is None or m in sizes)]
    return {m: float(np.median(first[m]) / np.median(second[m])) for m in common}


def span(values: Iterable[float], digits: str = ".2f") -> str:
    """From the least to the greatest."""
    values = list(values)
    low, high = f"{min(values):{digits}}", f"{max(values):{digits}}"
    return low if low == high else f"{low} to {high}"


def below(report: Report, text: str, paper: str, shares: Iterable[float], limit: float = 1.0) -> None:
    """Claim that every share, of one error in another, is below a limit."""
    shares = list(shares)
    report.claim(text, paper, f"{span(shares)} of the other", max(shares) < limit)


def draw(
    curves: dict[str, Series], ylabel: str, *, lines: dict[str, float] | None = None, log: bool = True
) -> Any:
    """Medians over the seeds against m, with bars from the least to the greatest; horizontal lines for what
    has no m.
    """
    from inducing.pictures.plots import figure

    ax = figure(8.0, 4.8)  # says what to install where matplotlib is missing
    from matplotlib.ticker import LogLocator, NullFormatter

    spare = iter(SPARE)
    for label, values in curves.items():
        colour, marker, line = STYLES.get(label) or (next(spare), "D", "-")
        middle = np.array([np.median(v) for v in values.values()])
        spread = np.abs(np.array([[min(v), max(v)] for v in values.values()]) - middle[:, None]).T
        ax.errorbar(
            list(values),
            middle,
            yerr=spread,
            color=colour,
            marker=marker,
            linestyle=line,
            markersize=5,
            elinewidth=1,
            label=label,
        )
    for label, height in (lines or {}).items():
        ax.axhline(height, color="#2b2b2b", linewidth=1, linestyle=":")
        ax.annotate(label, (0.01, height), xycoords=("axes fraction", "data"), va="bottom", fontsize=9)
    ax.set_xscale("log")
    if log:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter(NullFormatter())
    sizes = sorted({m for values in curves.values() for m in values})
    ax.set_xticks(sizes, [str(m) for m in sizes])
    ax.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    ax.set_xlabel("number of basis functions m")
    ax.set_ylabel(ylabel)
    ax.legend(frameon=False, fontsize=9)
    return ax.figure


def table(report: Report, title: str, curves: dict[str, Series], digits: str = ".4f") -> None:
    """Methods down, sizes across; medians over the seeds, and from the least to the greatest."""
    sizes = sorted({m for values in curves.values() for m in values})

    def cell(v: list[float] | None) -> str:
        if v is None:
            return ""
        return f"{np.median(v):{digits}}" + (
            f" ({min(v):{digits}} to {max(v):{digits}})" if len(v) > 1 else ""
        )

    rows = [(label, *(cell(values.get(m)) for m in sizes)) for label, values in curves.items()]
    report.table(title, ("", *(f"m = {m}" for m in sizes)), rows)


def longer(
    report: Report,
    store: Store,
    found: dict[str, Series],
    data: str,
    methods: tuple[str, ...],
    sizes: dict[int, int],
    **options: Any,
) -> list[Record]:
    """The records of some methods with 000's 4,000 iterations, beside those with fewer in a table."""
    records = store.all(learned(report, data, methods, sizes, LONG, **options))
    far, both = curves_of(records, methods, {}), {}
    for name in methods:
        both[name] = {m: found[name][m] for m in far[name]}
        both[f"{name}, {LONG} iterations"] = far[name]
    table(report, f"SMSE with {LONG} iterations", both)
    gains = {name: [1 - r for r in ratios(far[name], found[name]).values()] for name in methods}
    text = " and ".join(
        f"{name} by {span([100 * -g for g in gain], '.0f')} %" for name, gain in gains.items()
    )
    report.notes.append(f"{LONG} iterations instead of {ITERATIONS} change the error of {text}.")
    return records


def conclude(report: Report, records: Sequence[Record]) -> None:
    """Keep the numbers, and say how long the jobs took and on what."""
    report.values["records"], report.stored = records, True
    seconds: dict[str, float] = {}
    for record in records:
        seconds[record["device"]] = seconds.get(record["device"], 0.0) + record["seconds"]
    parts = [f"{total:.0f} s on {name}" for name, total in sorted(seconds.items())]
    text = f"The page is drawn from the records of {len(records)} jobs, which took {' and '.join(parts)}, "
    report.notes.append(text + "added up over processes that ran side by side.")


def curves_of(
    records: list[Record], methods: tuple[str, ...], rules: dict[str, str], value: str = "smse"
) -> dict[str, Series]:
    found = {method: series(records, value, method=method) for method in methods}
    return found | {
        name: series(records, value, method="selected-dtc", start=rule) for name, rule in rules.items()
    }


def middle(records: list[Record], value: str = "smse") -> float:
    return float(np.median([record[value] for record in records]))


def line_of(exact: list[Record]) -> dict[str, float]:
    """The exact GP's error, to be drawn as a line."""
    return {f"exact GP on {exact[0]['job']['m']} rows": middle(exact)}


def over_fitting(report: Report, records: list[Record], pairs: dict[str, str], noise: float) -> None:
    """At the largest m: what joint learning does to error, evidence and noise, against hyperparameters held
    at `noise`.
    """

    def at(m: int, name: str, value: str) -> float:
        return float(np.median(series(records, value, method=name)[m]))

    m = max(series(records, method=next(iter(pairs))))
    errors = [at(m, joint, "smse") / at(m, held, "smse") for joint, held in pairs.items()]
    gains = [at(m, joint, "log_evidence") - at(m, held, "log_evidence") for joint, held in pairs.items()]
    noises = [at(m, joint, "noise") for joint in pairs]
    report.claim(
        "Joint learning over-fits at large m: error above that with hyperparameters held, evidence higher, "
        "noise too small",
        "yes",
        f"m = {m}: {span(errors, '.1f')} times the error, evidence {span(gains, '+.0f')}, noise "
        f"{span(noises, '.0e')} where the exact GP has {noise:.0e}",
        min(errors) > 1 and min(gains) > 0 and max(noises) < noise,
    )
    densities = [at(m, joint, "msll") - at(m, held, "msll") for joint, held in pairs.items()]
    report.claim("… by log loss", "not reported", f"MSLL {span(densities, '+.2f')}, less being better")


def four_found(record: Record) -> bool:
    """Whether the four shortest lengthscales are those of the inputs that matter."""
    return set((np.argsort(record["lengthscale"])[:4] + 1).tolist()) == RELEVANT


def longest_relevant(record: Record) -> float:
    """The longest lengthscale among the inputs that matter."""
    return max(record["lengthscale"][i - 1] for i in RELEVANT)
