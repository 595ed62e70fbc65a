"""Error against the number of basis functions, with Gaussians of any width. [000 §5, Fig 2]

spgp: inducing inputs, from k-means. vsgp: half of the iterations as spgp, then the widths are free as well.
"-full" learns the hyperparameters at the same time; "-basis" holds them where an exact GP on a subset of the
data has them.
"""

from __future__ import annotations

import numpy as np

from .curve_pages import (
    LONG,
    RULES,
    SMALL_NOISE,
    Series,
    below,
    conclude,
    curves_of,
    draw,
    exact_records,
    four_found,
    learned,
    line_of,
    longer,
    middle,
    over_fitting,
    ratios,
    selected,
    series,
    settings,
    span,
    table,
)
from .curves import NOISE_FLOOR, Record, Store
from .report import Report

FULL, BASIS = ("spgp-full", "vsgp-full"), ("spgp-basis", "vsgp-basis")
GUARDED = ("vfe-full", "pep-full")  # jointly, by VFE's bound and by PEP's evidence at power ½
KIN_SIZES = {25: 3, 50: 3, 100: 3, 200: 3, 300: 3, 500: 3, 750: 1, 1000: 1}  # and how many seeds
GUARDED_SIZES = dict.fromkeys((50, 100, 200, 300, 500, 750, 1000), 1)
PUMA_SIZES = {10: 5, 25: 5, 50: 5, 75: 5, 100: 5, 160: 5}
LONG_SIZES, LONG_PUMA_SIZES = {50: 3, 100: 3}, {25: 3, 50: 3}  # with as many iterations as 000 has
LINES = {100: 0.207, 200: 0.13, 500: 0.053}  # what spgp-basis should reach on kin-40k


def w2(report: Report) -> None:
    """kin-40k."""
    store = Store.usual(report.quick)
    exact = exact_records(store, report, "kin40k", 3)
    jobs = learned(report, "kin40k", BASIS + FULL, KIN_SIZES)
    jobs += learned(report, "kin40k", GUARDED, GUARDED_SIZES)
    jobs += learned(report, "kin40k", ("floor-full",), {500: 1, 1000: 1})
    records = store.all(jobs + selected(report, "kin40k", RULES, KIN_SIZES))
    report.settings = settings(report, "kin40k", exact, jobs[0].iterations)
    found = curves_of(records, BASIS + FULL + GUARDED, RULES)
    spgp, vsgp = found["spgp-basis"], found["vsgp-basis"]

    below(report, "vsgp-basis is below spgp-basis at every m", "consistently", ratios(vsgp, spgp).values())
    below(report, "… by at least 10 % up to m = 100", "", ratios(vsgp, spgp, range(101)).values(), 0.9)
    reached = {m: float(np.median(spgp[m])) for m in LINES if m in spgp}
    holds = all(value <= LINES[m] for m, value in reached.items()) if reached else None
    lines = ", ".join(f"{line} at m = {m}" for m, line in LINES.items())
    report.claim(
        f"spgp-basis reaches {lines}", "", ", ".join(f"{value:.3f}" for value in reached.values()), holds
    )
    for rule in RULES:
        shares = [share for name in BASIS for share in ratios(found[name], found[rule]).values()]
        below(report, f"Both are below {rule} at every m", "yes", shares)
    small = ratios(found["vsgp-full"], found["spgp-full"], range(101))
    below(report, "vsgp-full is below spgp-full for small m (to 100)", "yes", small.values())
    shares = [
        share
        for name in FULL
        for rule in RULES
        for share in ratios(found[name], found[rule], range(101)).values()
    ]
    below(report, "… and both below info-gain and smo-bart there", "yes", shares)
    over_fitting(report, records, dict(zip(FULL, BASIS, strict=True)), middle(exact, "noise"))
    other = ratios(found["vsgp-full"], found["spgp-full"])[max(spgp)]
    below(report, f"vsgp-full over-fits no more than spgp-full (m = {max(spgp)})", "tends not to", [other])
    for name, what in zip(GUARDED, ("VFE's bound", "PEP's evidence at power ½"), strict=True):
        beside = ratios(found[name], spgp).values()
        below(
            report,
            f"Joint learning by {what} does not over-fit: error within 10 % of spgp-basis",
            "",
            beside,
            1.1,
        )
    floor = ratios(series(records, method="floor-full"), found["spgp-full"])
    below(
        report,
        f"A floor of {NOISE_FLOOR:g} under the noise (m = {max(floor)}) lowers spgp-full's error",
        "",
        [floor[max(floor)]],
    )
    falls = all(np.all(np.diff([np.median(v) for v in found[name].values()]) < 0) for name in BASIS)
    report.claim(
        "-basis does not over-fit",
        "neither does",
        f"error {'falls with every m' if falls else 'rises'}",
        falls,
    )

    further = [] if report.quick else longer(report, store, found, "kin40k", BASIS, LONG_SIZES)
    if further:
        far = curves_of(further, BASIS, {})
        shares = ratios(far["vsgp-basis"], far["spgp-basis"]).values()
        below(report, f"vsgp-basis is below spgp-basis with {LONG} iterations, too", "consistently", shares)
    report.pictures["error"] = draw(found, "standardised mean squared error", lines=line_of(exact))
    table(report, "SMSE", found)
    table(report, "MSLL", curves_of(records, BASIS + FULL + GUARDED, RULES, "msll"), ".3f")
    table(
        report,
        "Log evidence (each row's own)",
        curves_of(records, BASIS + FULL + GUARDED, {}, "log_evidence"),
        ".0f",
    )
    table(report, "Noise variance", curves_of(records, FULL + GUARDED, {}, "noise"), ".1e")
    report.notes.append(SMALL_NOISE)
    conclude(report, records + exact + further)


def w3(report: Report) -> None:
    """pumadyn-32nm."""
    store = Store.usual(report.quick)
    exact = exact_records(store, report, "pumadyn32nm", 5)
    jobs = learned(report, "pumadyn32nm", FULL, PUMA_SIZES)
    records = store.all(jobs + selected(report, "pumadyn32nm", RULES, PUMA_SIZES))
    report.settings = settings(report, "pumadyn32nm", exact, jobs[0].iterations)
    found = curves_of(records, FULL, RULES)

    near = ratios(found["vsgp-full"], found["spgp-full"]).values()
    alike = max(abs(ratio - 1) for ratio in near) <= 0.05
    report.claim("spgp-full and vsgp-full are alike", "very similar", f"ratio {span(near, '.3f')}", alike)
    for rule in RULES:
        shares = [share for name in FULL for share in ratios(found[name], found[rule]).values()]
        below(report, f"Both are below {rule} at every m", "yes", shares)
    for name in FULL:
        good = {m: sum(v <= 0.05 for v in values) for m, values in found[name].items() if 25 <= m <= 100}
        counts = ", ".join(f"{count} at m = {m}" for m, count in good.items()) or "not tried"
        holds = min(good.values()) >= 4 if good else None
        report.claim(
            f"{name} reaches .050 in at least 4 of 5 seeds for m = 25 to 100",
            "no bad local optima",
            counts,
            holds,
        )
    runs = [record for record in records if record["job"]["method"] in FULL and record["job"]["m"] >= 25]
    first = [four_found(record) for record in runs]
    report.claim(
        "The four inputs that matter (4, 5, 15, 16) have the shortest lengthscales, m ≥ 25",
        "",
        f"in {sum(first)} of {len(first)} runs",
        sum(first) >= 0.8 * len(first) if first else None,
    )
    hundred = found["spgp-full"].get(100, [])
    holds = sum(v <= 0.0455 for v in hundred) >= 4 if hundred else None
    report.claim("spgp-full reaches .0455 at m = 100", "", ", ".join(f"{v:.4f}" for v in hundred), holds)
    further = [] if report.quick else longer(report, store, found, "pumadyn32nm", FULL, LONG_PUMA_SIZES)
    if further:
        far = curves_of(further, FULL, {})
        near = ratios(far["vsgp-full"], far["spgp-full"]).values()
        alike = max(abs(ratio - 1) for ratio in near) <= 0.05
        text = f"spgp-full and vsgp-full are alike with {LONG} iterations, too"
        report.claim(text, "very similar", f"ratio {span(near, '.3f')}", alike)

    report.pictures["error"] = draw(found, "standardised mean squared error", lines=line_of(exact))
    table(report, "SMSE", found)
    table(report, "MSLL", curves_of(records, FULL, RULES, "msll"), ".3f")
    conclude(report, records + exact + further)


def w4(report: Report) -> None:
    """How far the variances σᵢ (squares of our widths) are from σ, the lengthscales squared: Σᵢⱼ (σᵢ - σ)²ⱼ /
    md.
    """
    store = Store.usual(report.quick)
    widened = ("vsgp-full", "vsgp-basis")
    kin = store.all(learned(report, "kin40k", widened, KIN_SIZES))
    puma = store.all(learned(report, "pumadyn32nm", ("vsgp-full",), PUMA_SIZES))
    report.settings = "The vsgp jobs of W2 and W3; medians over the seeds."
    found = {f"kin-40k, {name}": series(kin, "deviation", method=name) for name in widened}
    for name, values in found.items():
        middles = {m: float(np.median(v)) for m, v in values.items()}
        first, last = middles[min(middles)], middles[max(middles)]
        text = f"{first:.2f} at m = {min(middles)}, {last:.2f} at m = {max(middles)}"
        holds = max(middles.values()) == first
        report.claim(f"{name}: the deviation is largest for small m", "particularly for small m", text, holds)
    relative = {f"kin-40k, {name}": _relative(kin, name) for name in widened}
    relative["pumadyn-32nm, vsgp-full"] = _relative(puma, "vsgp-full")
    most = {name: max(float(np.median(v)) for v in values.values()) for name, values in relative.items()}
    ours, theirs = most["pumadyn-32nm, vsgp-full"], most["kin-40k, vsgp-basis"]
    text = f"relative to σ at most {ours:.4f}; on kin-40k {theirs:.4f}"
    report.claim("On pumadyn-32nm the variances deviate little", "little", text, ours < 0.25 * theirs)
    report.pictures["deviation"] = draw(found, "mean squared deviation of the variances")
    report.pictures["relative"] = draw(relative, "mean squared relative deviation of the variances")
    table(report, "Mean squared deviation (σᵢ - σ)²", found, ".3f")
    table(report, "Mean squared relative deviation (σᵢ/σ - 1)²", relative, ".1e")
    report.notes.append(
        "pumadyn-32nm has 28 inputs that do not matter, with lengthscales in the hundreds: there only the "
        "deviation relative to σ says anything."
    )
    conclude(report, kin + puma)


def _relative(records: list[Record], method: str) -> Series:
    found = series(records, "relative", method=method)
    return {m: [float(np.mean(per_input)) for per_input in values] for m, values in found.items()}
