"""`inducing inspect`: what a model file holds."""

from typing import Any

import typer

from ..errors import ModelFileError
from .app import (
    Model,
    about_noise,
    app,
    columns_of,
    file_size,
    formatted,
    load_model,
    posterior_of,
    print_table,
    show,
)


@app.command()
def inspect(model: Model) -> None:
    """Show what a model file holds: kernel, lengthscales by input, noise, basis, evidence."""
    estimator = load_model(model)
    metadata = estimator.metadata_
    rows = {"file": f"{model} ({file_size(model)})", "model": type(estimator).__name__}
    if "target" in metadata:
        rows["target"] = metadata["target"]
    rows |= {"inputs": f"{estimator.n_features_in_}"} | _about(estimator)
    rows |= {f"held-out {name}": text for name, text in formatted(metadata.get("held_out", {})).items()}
    typer.echo("\n".join(in_words(estimator)))
    print_table("Model", rows)
    _print_kernel(estimator)


def in_words(estimator: Any) -> list[str]:
    """Sentences on what a model is good for, how sure it is, and what would help."""
    import numpy as np

    from ..learning.diagnosis import relevance
    from ..model.kernels import leaves
    from ..sources.columns import listing

    metadata, post = estimator.metadata_, posterior_of(estimator)
    weight = relevance(post.kernel, post.basis)
    names, target = feature_names(estimator), metadata.get("target", "y")
    weight = weight[: len(names)]
    rows = getattr(estimator, "n_rows_", None)
    told = "" if rows is None else f", learned from {rows} rows"
    out = [f"This model predicts {target} from {len(names)} inputs{told}."]
    held = metadata.get("held_out", {})
    if "SMSE" in held:
        share = max(0.0, 1.0 - held["SMSE"])
        out.append(f"On rows held out it explains {share:.0%} of the variance of {target}.")
    if "error in %" in held:
        out.append(f"On rows held out it names the wrong class in {held['error in %']:.1%} of the cases.")
    inside = next((value for name, value in held.items() if "coverage" in name), None)
    if inside is not None:
        sure = (
            "as they should"
            if abs(inside - 0.95) < 0.03
            else "which is too few"
            if inside < 0.95
            else "more than said"
        )
        out.append(f"{inside:.0%} of the values held out lie in its intervals of 95 %, {sure}.")
    little = (weight == 0) | (weight < 0.01 * weight.max())
    for _, part in leaves(post.kernel.spec()):
        if part["name"] == "Linear":  # which has no lengthscale, and looks at all of its columns
            little[[j for j in part.get("columns") or range(len(names)) if j < len(names)]] = False
    none = [names[j] for j in np.flatnonzero(little)]
    most = [names[j] for j in np.argsort(-weight, kind="stable")[:3] if weight[j] > 0 and not little[j]]
    out += [f"It looks most at {listing(most, quote=False)}."] if most else []
    out += [f"It learned next to nothing from {listing(none, quote=False)}."] if none else []
    return out + list(getattr(getattr(estimator, "report_", None), "advice", ()))


def feature_names(estimator: Any) -> list[str]:
    """The names of a model's inputs, x1, x2, … where it knows none."""
    try:
        return [str(name) for name in columns_of(estimator)[0].get_feature_names_out()]
    except ModelFileError:
        return [f"x{i + 1}" for i in range(estimator.n_features_in_)]


def _about(estimator: Any) -> dict[str, str]:
    """Lines about a model, by its kind."""
    rows = {"basis": f"{estimator.basis_size_} {type(posterior_of(estimator).basis).__name__}"}
    if hasattr(estimator, "noise_posterior_"):
        evidence = {"log evidence": f"{estimator.log_evidence_:.6g}"} | about_noise(estimator)
        data = getattr(estimator.posterior_, "data", None)  # the training rows, where a query needs them
        held = {} if data is None else {"training rows in the file": f"{len(data)}"}
        return {"approximation": estimator.approximation_} | rows | held | evidence
    if not hasattr(estimator, "warmup"):
        evidence = estimator.log_evidence_
        return rows | ({} if evidence is None else {"log evidence": f"{evidence:.6g}"})
    if hasattr(estimator, "classes_"):
        rows |= {"classes": ", ".join(map(str, estimator.classes_))}
        own = {"approximation": estimator.approximation, "method": estimator.method}
        batch = estimator.method is None
        rows |= {key: value for key, value in own.items() if (key == "method") != batch}
        if estimator.log_evidence_ is not None:
            rows["log evidence"] = f"{estimator.log_evidence_:.6g}"
    else:
        rows["log predictive density"] = f"{estimator.log_predictive_:.6g}"
        if estimator.noise_ is not None:
            rows |= about_noise(estimator)
    rows |= {
        "functions, at most": f"{estimator.n_inducing}",
        "likelihood": type(estimator.likelihood_).__name__,
    }
    rows["rows read"] = f"{estimator.n_rows_}"
    if estimator.warming_up_:
        rows["warm-up"] = f"{estimator.n_rows_} of {estimator.warmup} rows: units and kernel are not settled"
    return rows | _about_stream(estimator.metadata_.get("stream"))


def _about_stream(stream: Any) -> dict[str, str]:
    """Lines about a stream, from what the model file says of it."""
    from ..streams.scores import scores_from

    if not isinstance(stream, dict):
        return {}
    metrics = formatted(scores_from(stream["metrics"]).values())
    refused = {"rows refused": f"{stream['place']['refused']}"}
    return refused | {f"stream {name}": text for name, text in metrics.items()}


def _print_kernel(estimator: Any) -> None:
    """Print each part of the kernel; its lengthscales input by input, the most relevant first."""
    import numpy as np
    from rich.table import Table

    from ..learning.diagnosis import relevance
    from ..model.kernels import leaves

    d, names = estimator.n_features_in_, feature_names(estimator)
    post = posterior_of(estimator)
    weight = relevance(post.kernel, post.basis)
    own = estimator.x_scale_ if hasattr(estimator, "x_scale_") else estimator.span_
    scale = np.broadcast_to(own, max(d, np.size(own)))  # with what is known of gaps, where they are used
    names += [f"gaps {i + 1}" for i in range(len(scale) - d)]
    if estimator.kinds_.guide is not None:
        names[-1] = "guide"
    for path, part in leaves(post.kernel.spec()):
        numbers = ", ".join(f"{key} {value:.4g}" for key, value in part.items() if isinstance(value, float))
        table = Table("input")
        table.add_column("lengthscale", justify="right")
        table.add_column("in standard deviations", justify="right")
        dates = (
            {c.name for c in estimator.encoder_.columns_ if c.kind in ("time", "duration")}
            if estimator.encoder_
            else ()
        )
        many = np.size(part.get("lengthscale", 0.0)) if np.ndim(part.get("lengthscale", 0.0)) else d
        columns = range(many) if part.get("columns") is None else part["columns"]
        if "period" in part:
            table.add_column("period", justify="right")
        if "lengthscale" in part:
            period = np.broadcast_to(part.get("period", np.nan), len(columns))
            lengthscale = np.broadcast_to(part["lengthscale"], len(columns))
            for i in sorted(range(len(columns)), key=lambda i: (weight[columns[i]] == 0, lengthscale[i])):
                j = columns[i]
                own = lengthscale[i] * scale[j]
                shown = "constant" if weight[j] == 0 else in_days(own) if names[j] in dates else f"{own:.4g}"
                turn = period[i] * scale[j]  # the lengthscale of what repeats has no unit
                again = [in_days(turn) if names[j] in dates else f"{turn:.4g}"] if "period" in part else []
                table.add_row(names[j], "no unit" if again else shown, f"{lengthscale[i]:.4g}", *again)
        show(f"Kernel {path}{part['name']}: {numbers}", *([table] if "lengthscale" in part else []))


def in_days(seconds: float) -> str:
    """A time in the unit that suits it."""
    units = {"years": 31556952.0, "days": 86400.0, "hours": 3600.0, "minutes": 60.0}
    name, unit = next(((name, unit) for name, unit in units.items() if seconds >= unit), ("seconds", 1.0))
    return f"{seconds / unit:.3g} {name}"
