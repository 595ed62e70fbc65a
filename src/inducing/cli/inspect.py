"""`inducing inspect`: show what a model file holds."""

from typing import Any

import typer

from ..errors import ModelFileError
from . import app as shared
from .app import app

COVERAGE = "coverage of 95 %"
PAIRS = 500  # of basis functions, between which `influence` exchanges a column
PRINTED = 30  # inputs listed for each part of a kernel


@app.command()
def inspect(model: shared.Model) -> None:
    """Show what a model file holds: kernel, lengthscales by input, noise, basis, evidence."""
    estimator = shared.load_model(model)
    metadata = estimator.metadata_
    rows = {"file": f"{model} ({shared.file_size(model)})", "model": type(estimator).__name__}
    if "target" in metadata:
        rows["target"] = metadata["target"]
    inputs = {"inputs": f"{len(influence(estimator))} columns, {estimator.n_features_in_} features"}
    rows |= inputs | _about(estimator)
    scores = shared.formatted(metadata.get("held_out", {}))
    rows |= {f"held-out {name}": text for name, text in scores.items()}
    report: Any = getattr(estimator, "report_", "")
    advice = [report] if isinstance(report, str) else [report.verdict, *report.advice]
    typer.echo(shared.printable("\n".join([*in_words(estimator), *filter(None, advice)])))
    shared.print_table("Model", rows)
    _print_kernel(estimator)


def in_words(estimator: Any) -> list[str]:
    """Write sentences on how well a model predicts, how honest its intervals are, and which inputs matter."""
    from ..learning.diagnosis import as_promised, percent
    from ..sources.columns import listing

    metadata, weight = estimator.metadata_, influence(estimator)
    target, held, count = (metadata.get(k, v) for k, v in (("target", "y"), ("held_out", {}), ("held", 0)))
    rows, on = getattr(estimator, "n_rows_", None), f"On {count} rows held out".replace(" 0 ", " ")
    learned = "" if rows is None else f", learned from {rows} rows"
    out = [f"This model predicts {target} from {len(weight)} column{'s' * (len(weight) > 1)}{learned}."]
    if "SMSE" in held:
        off = f" is off by {held['RMSE']:.3g} (root mean square) and" if "RMSE" in held else ""
        out.append(f"{on} it{off} explains {percent(1.0 - held['SMSE'])} of the variance of {target}.")
    if "error in %" in held:
        out.append(f"{on} it names the wrong class in {percent(held['error in %'], 1)} of the cases.")
    if COVERAGE in held:
        kept = as_promised(held[COVERAGE], count or 1000)
        out.append(f"{percent(held[COVERAGE])} of the values held out lie in its intervals of 95 %, {kept}.")
    least = 0.01 * max(weight.values(), default=0.0)
    most = [name for name in sorted(weight, key=lambda name: -weight[name]) if weight[name] > least]
    none = [name for name in weight if weight[name] <= least]
    out += [f"It looks most at {listing(most[:3], quote=False)}."] if most else []
    return out + ([f"It learned next to nothing from {listing(none, quote=False)}."] if none else [])


def influence(estimator: Any) -> dict[str, float]:
    """Measure each column's influence: the root mean square change of f at the basis functions, over all
    classes, when the column takes its value at another basis function.
    """
    import numpy as np

    posts = getattr(estimator, "posteriors_", None) or [estimator.posterior_]
    Z = np.asarray(posts[0].basis.centers)
    at, other = np.random.default_rng(0).integers(len(Z), size=(2, PAIRS))
    each = {column.name: len(column.features) for column in encoder_of(estimator).columns_ if column.features}
    out, first, means = {}, 0, [post.mean(Z[at]) for post in posts]
    for name, size in each.items():
        moved, first = Z[at], first + size
        moved[:, first - size : first] = Z[other, first - size : first]
        change = [post.mean(moved) - mean for post, mean in zip(posts, means)]
        out[name] = float(np.sqrt(np.mean(np.square(change))))
    return out


def encoder_of(estimator: Any) -> Any:
    """Return the encoder of a model's columns, named x1, x2, … if it knows no names."""
    from ..sources.encoding import ColumnEncoder

    try:
        return shared.columns_of(estimator)[0]
    except ModelFileError:
        return ColumnEncoder.of_numbers([f"x{i + 1}" for i in range(estimator.n_features_in_)])


def _about(estimator: Any) -> dict[str, str]:
    """Collect names and values about a model, by its kind."""
    rows = {"basis": f"{estimator.basis_size_} {type(shared.posterior_of(estimator).basis).__name__}"}
    if hasattr(estimator, "noise_posterior_"):
        evidence = {"log evidence": f"{estimator.log_evidence_:.6g}"} | shared.about_noise(estimator)
        data = getattr(estimator.posterior_, "data", None)  # the training rows, where a query needs them
        held = {} if data is None else {"training rows in the file": f"{len(data)}"}
        rows |= {"training rows": f"{estimator.n_rows_}"} if hasattr(estimator, "n_rows_") else {}
        return {"approximation": estimator.approximation_} | rows | held | evidence
    if not hasattr(estimator, "warmup"):
        evidence = estimator.log_evidence_
        return rows | ({} if evidence is None else {"log evidence": f"{evidence:.6g}"})
    if hasattr(estimator, "classes_"):
        rows |= {"classes": ", ".join(map(str, estimator.classes_))}
        row = "fitc" if estimator.approximation == "auto" else estimator.approximation
        own = {"approximation": row, "method": estimator.method}
        batch = estimator.method is None
        rows |= {key: value for key, value in own.items() if (key == "method") != batch}
        if estimator.log_evidence_ is not None:
            rows["log evidence"] = f"{estimator.log_evidence_:.6g}"
    else:
        rows["log predictive density"] = f"{estimator.log_predictive_:.6g}"
        if estimator.noise_ is not None:
            rows |= shared.about_noise(estimator)
    rows["functions, at most"] = f"{estimator.n_inducing}"
    rows["likelihood"] = type(estimator.likelihood_).__name__
    batch = hasattr(estimator, "classes_") and estimator.method is None
    rows["training rows" if batch else "rows read"] = f"{estimator.n_rows_}"
    if estimator.warming_up_:
        rows["warm-up"] = f"{estimator.n_rows_} of {estimator.warmup} rows: units and kernel are not settled"
    return rows | _about_stream(estimator.metadata_.get("stream"))


def _about_stream(stream: Any) -> dict[str, str]:
    """Collect names and values about a stream, from its record in the model file."""
    from ..streams.scores import scores_from

    if not isinstance(stream, dict):
        return {}
    metrics = shared.formatted(scores_from(stream["metrics"]).values())
    refused = {"rows refused": f"{stream['place']['refused']}"}
    return refused | {f"stream {name}": text for name, text in metrics.items()}


def _print_kernel(estimator: Any) -> None:
    """Print the parts of the kernel with their lengthscales and periods, in the units of the inputs: the
    shortest lengthscale first, constant inputs last.
    """
    import numpy as np
    from rich.table import Table

    from ..learning.diagnosis import relevance
    from ..model.kernels import leaves
    from ..sources.columns import in_days

    d, names = estimator.n_features_in_, list(encoder_of(estimator).get_feature_names_out())
    post = shared.posterior_of(estimator)
    weight = relevance(post.kernel, post.basis)
    own = estimator.x_scale_ if hasattr(estimator, "x_scale_") else estimator.span_
    scale = np.broadcast_to(own, max(d, np.size(own)))  # d, or more with marks of gaps
    names += [f"gaps {i + 1}" for i in range(len(scale) - d)]
    if estimator.kinds_.guide is not None:
        names[-1] = "guide"
    dates = {c.name for c in encoder_of(estimator).columns_ if c.kind in ("time", "duration")}
    for path, kernel in leaves(post.kernel):
        part = kernel.spec()
        numbers = {k: v for k, v in part.items() if isinstance(v, float)}
        text = ", ".join(f"{k} {v:.4g}" for k, v in numbers.items() if k not in ("lengthscale", "period"))
        shared.show(f"Kernel {path}{part['name']}: {text}")
        if "lengthscale" not in part:
            continue
        table = Table("input")
        for title in ("lengthscale", "in standard deviations", *(["period"] if "period" in part else [])):
            table.add_column(title, justify="right")
        many = np.size(part["lengthscale"]) if np.ndim(part["lengthscale"]) else d
        columns = range(many) if part.get("columns") is None else part["columns"]
        period = np.broadcast_to(part.get("period", np.nan), len(columns))
        lengthscale = np.broadcast_to(part["lengthscale"], len(columns))
        order = sorted(range(len(columns)), key=lambda i: (weight[columns[i]] == 0, lengthscale[i]))
        for i in order[:PRINTED]:
            j, unit = columns[i], scale[columns[i]]
            shown = in_days if names[j] in dates else "{:.4g}".format
            turn = [shown(period[i] * unit)] if "period" in part else []
            own = "constant" if weight[j] == 0 else "no unit" if turn else shown(lengthscale[i] * unit)
            table.add_row(shared.printable(names[j]), own, f"{lengthscale[i]:.4g}", *turn)
        if len(order) > PRINTED:
            table.add_row(f"{len(order) - PRINTED} more", "longer", "longer")
        shared.show(table)
