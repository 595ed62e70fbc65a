"""Learned inducing inputs against selected ones, and what [001] and [003 §11] left open, on kin-40k and
pumadyn-32nm.
"""

from __future__ import annotations

import numpy as np

from .curve_pages import (
    LONG,
    QUICK_ROWS,
    RULES,
    SMALL_NOISE,
    Series,
    below,
    conclude,
    curves_of,
    draw,
    exact_records,
    learned,
    line_of,
    longer,
    longest_relevant,
    middle,
    over_fitting,
    ratios,
    selected,
    series,
    settings,
    span,
    table,
)
from .curves import Job, Record, Store
from .report import Report

THREE = {"random": "random"} | RULES
KIN_SIZES = dict.fromkeys((50, 100, 200, 300, 500), 3) | {1000: 1, 1200: 1}  # and how many seeds
LONG_SIZES = {50: 3}
PUMA_SIZES = dict.fromkeys((10, 25, 50, 75, 100, 160), 3)
IGNORED = 30.0  # a lengthscale, in standard deviations of the input, beyond which it has no say
HYPER_SIZES = {25: 3, 50: 3, 100: 3, 200: 3, 500: 3}
SHARES = (0.25, 0.5, 0.75, 1.0)
BLOCK_SIZES = {25: 3, 50: 3, 100: 3}  # learned jointly; with hyperparameters held also m = 200
RANDOM = {  # SMSE of a random subset on kin-40k, computed once with dense formulas
    "dtc": {50: 0.594, 100: 0.348, 200: 0.207, 300: 0.145, 500: 0.101, 1000: 0.053},
    "fitc": {50: 0.672, 100: 0.404, 200: 0.257, 300: 0.179, 500: 0.121, 1000: 0.061},
}


def s3(report: Report) -> None:
    """kin-40k, inducing inputs from random rows. [001 Fig 3, top]"""
    store = Store.usual(report.quick)
    exact = exact_records(store, report, "kin40k", 3)
    jobs = learned(report, "kin40k", ("spgp-basis", "spgp-full"), KIN_SIZES, start="random")
    jobs += selected(report, "kin40k", RULES, KIN_SIZES)
    jobs += selected(report, "kin40k", {"random": "random"}, KIN_SIZES, seeds=3)
    jobs += selected(report, "kin40k", {"random": "random"}, KIN_SIZES, row="fitc", seeds=3)
    records = store.all(jobs)
    report.settings = settings(report, "kin40k", exact, jobs[0].iterations)
    found = curves_of(records, ("spgp-basis", "spgp-full"), THREE)
    found["random, FITC"] = series(records, method="selected-fitc")
    held, joint = found["spgp-basis"], found["spgp-full"]

    for rule in THREE:
        below(
            report,
            f"SPGP with hyperparameters held is below {rule} at every M",
            "significantly",
            ratios(held, found[rule]).values(),
        )
    reached = [m for m, values in held.items() if np.median(values) <= middle(exact)]
    text = f"reached at M = {reached[0]}" if reached else "not reached"
    report.claim(
        "… and reaches the exact GP's error with a few hundred",
        "approaches rapidly",
        text,
        bool(reached and reached[0] <= 500),
    )
    small = [share for rule in THREE for share in ratios(joint, found[rule], range(101)).values()]
    below(
        report,
        "SPGP with hyperparameters learned jointly is below all three for small M (to 100)",
        "extremely well",
        small,
    )
    over_fitting(report, records, {"spgp-full": "spgp-basis"}, middle(exact, "noise"))
    for row, name in (("dtc", "random"), ("fitc", "random, FITC")):
        gaps = [
            float(np.median(values)) / RANDOM[row][m] for m, values in found[name].items() if m in RANDOM[row]
        ]
        text, holds = (
            (f"ratio {span(gaps)}", max(abs(gap - 1) for gap in gaps) <= 0.2) if gaps else ("not tried", None)
        )
        report.claim(
            f"A random subset under {row.upper()} has the errors that dense formulas gave", "", text, holds
        )

    both = ("spgp-basis", "spgp-full")
    further = [] if report.quick else longer(report, store, found, "kin40k", both, LONG_SIZES, start="random")
    if further:
        far = curves_of(further, both, {})
        shares = [
            share for name in both for rule in THREE for share in ratios(far[name], found[rule]).values()
        ]
        text = f"Both are below all three with {LONG} iterations (M = {', '.join(map(str, LONG_SIZES))})"
        below(report, text, "significantly", shares)
    report.pictures["error"] = draw(found, "standardised mean squared error", lines=line_of(exact))
    table(report, "SMSE", found)
    table(report, "MSLL", curves_of(records, both, THREE, "msll"), ".3f")
    table(report, "Log evidence", curves_of(records, ("spgp-basis", "spgp-full"), {}, "log_evidence"), ".0f")
    table(report, "Noise variance", curves_of(records, ("spgp-full",), {}, "noise"), ".1e")
    report.notes.append(SMALL_NOISE)
    conclude(report, records + exact + further)


def s4(report: Report) -> None:
    """pumadyn-32nm, inducing inputs from random rows. [001 Fig 3, bottom]"""
    store = Store.usual(report.quick)
    exact = exact_records(store, report, "pumadyn32nm", 3)
    jobs = learned(report, "pumadyn32nm", ("spgp-full", "spgp-exact"), PUMA_SIZES, 600, start="random")
    records = store.all(jobs + selected(report, "pumadyn32nm", THREE, PUMA_SIZES))
    report.settings = settings(report, "pumadyn32nm", exact, jobs[0].iterations)
    report.settings += " spgp-exact starts at the exact GP's hyperparameters and learns on from there."
    found = curves_of(records, ("spgp-full", "spgp-exact"), THREE)
    joint, started, line = found["spgp-full"], found["spgp-exact"], middle(exact)

    ten = float(np.median(joint[min(joint)])) / line
    text = f"{ten:.2f} times the exact GP's error at M = {min(joint)}"
    report.claim(
        "SPGP learned jointly is close to the exact GP with M = 10", "already close, without a number", text
    )
    few = [ratios(joint, found[rule])[min(joint)] for rule in THREE]
    below(
        report,
        f"… and below the three selections, whose hyperparameters are the exact GP's (M = {min(joint)})",
        "yes",
        few,
    )
    others = [share for rule in THREE for share in ratios(started, found[rule]).values()]
    below(
        report,
        "SPGP started at the exact GP's hyperparameters is below the three at every M",
        "significantly",
        others,
    )
    reached = [m for m, values in started.items() if np.median(values) <= line]
    text = f"at M = {reached[0]}" if reached else "not"
    report.claim(
        "Started at the exact GP's hyperparameters, M = 25 reaches its error",
        "yes",
        text,
        bool(reached and reached[0] <= 25),
    )
    large = [
        record for record in records if record["job"]["method"] == "spgp-full" and record["job"]["m"] >= 25
    ]
    missed = sum(longest_relevant(record) > IGNORED for record in large)
    report.claim(
        "From a plain start some of the four relevant inputs are missed, and a larger M does not help",
        "two of four",
        f"missed in {missed} of {len(large)} runs with M ≥ 25",
        missed > len(large) / 2 if large else None,
    )
    gains = {
        m: float(np.median(v) - np.median(series(records, "log_evidence", method="spgp-full")[m]))
        for m, v in series(records, "log_evidence", method="spgp-exact").items()
    }
    text = f"evidence differs by {span(gains.values(), '+.0f')}"
    report.claim(
        "The start at the exact GP's hyperparameters has the higher evidence",
        "yes",
        text,
        min(gains.values()) > 0,
    )

    _why_all_found(report, store, records)
    report.notes.append(
        f"An input counts as missed where its lengthscale is above {IGNORED:.0f} of its standard deviations. "
        "A run that misses some stays at the error of M = 10, whatever M is."
    )
    report.pictures["error"] = draw(found, "standardised mean squared error", lines=line_of(exact))
    table(report, "SMSE", found)
    table(report, "Log evidence", curves_of(records, ("spgp-full", "spgp-exact"), {}, "log_evidence"), ".0f")
    conclude(report, records + exact)


def _why_all_found(report: Report, store: Store, records: list[Record]) -> None:
    """The same starts with fewer iterations; evidence where the plain start found all four inputs."""
    few = store.all(
        learned(report, "pumadyn32nm", ("spgp-full",), {25: 3, 50: 3, 75: 3}, 150, start="random")
    )
    missed = [longest_relevant(record) > IGNORED for record in few]
    errors = [record["smse"] for record, miss in zip(few, missed, strict=True) if miss]
    report.why(
        "From a plain start some of the four",
        "001 prints neither its start nor when its optimiser stopped",
        f"after 150 iterations instead of 600 some are missed in {sum(missed)} of {len(few)} runs with M "
        f"= 25 to 75" + (f", whose SMSE is {span(errors, '.3f')}, that of M = 10" if errors else ""),
        True if sum(missed) > len(few) / 2 else None,
    )
    started = {(r["job"]["m"], r["job"]["seed"]): r for r in records if r["job"]["method"] == "spgp-exact"}
    pairs = [
        (
            longest_relevant(r) > IGNORED,
            started[r["job"]["m"], r["job"]["seed"]]["log_evidence"] - r["log_evidence"],
        )
        for r in records
        if r["job"]["method"] == "spgp-full" and r["job"]["m"] >= 25
    ]
    stuck, well = ([gain for miss, gain in pairs if miss is which] for which in (True, False))
    if stuck and well:
        report.why(
            "The start at the exact GP's hyperparameters has",
            "it pays where the plain start misses an input, and only there",
            f"M ≥ 25: {span(stuck, '+.0f')} nats in {len(stuck)} runs with an input missed, "
            f"{span(well, '+.0f')} (median {np.median(well):+.0f}) in the {len(well)} others",
            min(stuck) > max(well),
        )


def s5(report: Report) -> None:
    """kin-40k: which evidence is the better guide to hyperparameters, and inducing inputs of which only some
    are learned.
    """
    store = Store.usual(report.quick)
    names = {"DTC's evidence": "hyper-dtc", "FITC's evidence": "hyper-fitc", "VFE's bound": "hyper-vfe"}
    hyper = store.all(learned(report, "kin40k", tuple(names.values()), HYPER_SIZES, 200, start="random"))
    exact = exact_records(store, report, "kin40k", 3)
    report.settings = settings(report, "kin40k", exact, hyper[0]["job"]["iterations"])
    report.settings += (
        " First part: inducing inputs are random rows and stay; only hyperparameters are learned."
    )
    errors = {label: series(hyper, method=name) for label, name in names.items()}
    losses = {label: series(hyper, "msll", method=name) for label, name in names.items()}
    ratio = ratios(errors["FITC's evidence"], errors["DTC's evidence"])
    report.claim(
        "For hyperparameters, is FITC's evidence or DTC's (PLV) the better guide? By squared error",
        "left open",
        f"FITC's {span(ratio.values())} of DTC's: the same within a few per cent",
        max(abs(r - 1) for r in ratio.values()) <= 0.1,
    )
    gaps = [
        float(np.median(v) - np.median(losses["DTC's evidence"][m]))
        for m, v in losses["FITC's evidence"].items()
    ]
    report.claim(
        "… by log loss FITC's is better at every m", "left open", f"MSLL {span(gaps, '+.2f')}", max(gaps) < 0
    )
    noise = {label: series(hyper, "noise", method=name) for label, name in names.items()}
    shares = ratios(noise["FITC's evidence"], noise["DTC's evidence"]).values()
    below(
        report, "DTC's single noise pays for what the basis leaves out: FITC's noise is smaller", "", shares
    )
    report.pictures["error"] = draw(errors, "standardised mean squared error")
    report.pictures["loss"] = draw(losses, "mean standardised log loss", log=False)
    table(report, "SMSE, hyperparameters learned on random inducing inputs", errors)
    table(report, "MSLL", losses, ".3f")
    table(report, "Noise variance", noise, ".3f")
    report.notes.append("Each row predicts by its own conditional: DTC's error bars are those of DTC.")
    conclude(report, hyper + exact + _mixed(report, store))


def _mixed(report: Report, store: Store) -> list[Record]:
    """Some inducing inputs random and held, the others learned; hyperparameters held. [001 §5]"""
    rows, iterations, sizes = (QUICK_ROWS, 20, (20,)) if report.quick else (0, 500, (200, 500))
    records, cells, seed = [], [], report.seeds(1)[0]
    for m in sizes:
        found = {0.0: store.record(Job("kin40k", "selected-fitc", m, seed, start="random", rows=rows))}
        for share in SHARES:
            found[share] = store.record(
                Job("kin40k", "spgp-basis", m, seed, iterations, "random", share, rows=rows)
            )
        errors = {share: record["smse"] for share, record in found.items()}
        gained = (errors[0.0] - errors[0.25]) / (errors[0.0] - errors[1.0])
        report.claim(
            f"Some inducing inputs random, the others learned (m = {m}): a quarter learned has most of the "
            "gain",
            "left open",
            f"{gained:.0%} of it; SMSE "
            + ", ".join(f"{error:.3f} at {share:.0%}" for share, error in errors.items()),
            gained > 0.5,
        )
        names = ("smse", "msll", "log_evidence")
        cells += [
            (m, f"{share:.0%}", *(f"{record[name]:.4g}" for name in names)) for share, record in found.items()
        ]
        records += list(found.values())
    header = ("m", "share learned", "SMSE", "MSLL", "log evidence")
    report.table(
        f"Some random, others learned ({iterations} iterations, hyperparameters held)", header, cells
    )
    return records


def q4(report: Report) -> None:
    """PITC with learned inducing inputs against FITC with learned ones, on kin-40k. [003 §11]"""
    store = Store.usual(report.quick)
    blocks = 6 if report.quick else 100
    exact = exact_records(store, report, "kin40k", 3)
    pitc, fitc = [], []
    for kind, sizes in (("basis", BLOCK_SIZES | {200: 2}), ("full", BLOCK_SIZES)):
        pitc += store.all(learned(report, "kin40k", (f"pitc-{kind}",), sizes, 300, blocks=blocks))
        fitc += store.all(learned(report, "kin40k", (f"spgp-{kind}",), sizes, 300))
    report.settings = settings(report, "kin40k", exact, pitc[0]["job"]["iterations"])
    report.settings += (
        f" PITC's {blocks} blocks are the clusters of k-means; inducing inputs start at k-means centres."
    )
    for kind, what in (("basis", "hyperparameters held"), ("full", "learned jointly")):
        errors = _conditionals(pitc, fitc, kind, "smse")
        losses = _conditionals(pitc, fitc, kind, "msll")
        ratio = ratios(errors["PITC"], errors["FITC"])
        report.claim(
            f"PITC with learned inducing inputs supersedes FITC with learned ones ({what}): lower error at "
            "every m",
            "we could hope",
            ", ".join(f"{r:.2f} of FITC's at m = {m}" for m, r in ratio.items()),
            max(ratio.values()) < 1,
        )
        gaps = [float(np.median(v) - np.median(losses["FITC"][m])) for m, v in losses["PITC"].items()]
        report.claim(
            f"… and lower log loss at every m ({what})",
            "we could hope",
            f"MSLL {span(gaps, '+.2f')}",
            max(gaps) < 0,
        )
        own = ratios(errors["PIC"], errors["FITC"]).values()
        below(report, "With the query's own block seen exactly (PIC) the blocks do pay", "", own)
        _why_blocks(report, errors, losses, what)
        report.pictures[f"error-{kind}"] = draw(errors, f"standardised mean squared error, {what}")
        table(report, f"SMSE, {what}", errors)
        table(report, f"MSLL, {what}", losses, ".3f")
    report.notes.append(
        "PITC's evidence lets the blocks explain what is local, so its inducing inputs take care of the "
        "rest. A query that is in no block then misses the local part, and with few inducing inputs that is "
        "most of it. PIC gives the query its block back, at the price of keeping the data."
    )
    conclude(report, pitc + fitc + exact)


def _why_blocks(report: Report, errors: dict[str, Series], losses: dict[str, Series], what: str) -> None:
    """What PITC's inputs and parameters give where no block matters, and where the query's does."""
    m, reason = (
        min(errors["FITC"]),
        "what is local is left to the blocks, and a query in none of them misses it",
    )
    least = ratios(errors["PITC's inputs under FITC"], errors["FITC"])[m]
    seen = ratios(errors["PIC"], errors["FITC"])
    found = (
        f"the same inputs under FITC have {least:.2f} times the error of FITC's own at m = {m}; with "
        f"their block "
        f"seen (PIC) queries have {span(seen.values())}"
    )
    claim = f"PITC with learned inducing inputs supersedes FITC with learned ones ({what})"
    report.why(claim, reason, found, least > 1.0 > max(seen.values()))

    def apart(name: str) -> list[float]:
        return [float(np.median(v) - np.median(losses["FITC"][k])) for k, v in losses[name].items()]

    found = (
        f"MSLL less that of FITC: {span(apart('PITC'), '+.2f')} as it is, "
        f"{span(apart('PIC'), '+.2f')} with their block seen (PIC)"
    )
    report.why(f"… and lower log loss at every m ({what})", reason, found, max(apart("PIC")) < 0)


def _conditionals(pitc: list[Record], fitc: list[Record], kind: str, value: str) -> dict[str, Series]:
    return {
        "FITC": series(fitc, value, method=f"spgp-{kind}"),
        "PITC": series(pitc, value, method=f"pitc-{kind}"),
        "PITC's inputs under FITC": series(pitc, f"fitc {value}", method=f"pitc-{kind}"),
        "PIC": series(pitc, f"pic {value}", method=f"pitc-{kind}"),
    }
