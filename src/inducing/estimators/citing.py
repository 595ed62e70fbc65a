"""`citation`: BibTeX of this package and of the methods that a fitted model used."""

from importlib.resources import files
from typing import Any

from .. import __version__
from ..model.bases import Multiscale
from ..model.likelihoods import Gaussian, LearnedNoise

_ROWS = {  # works by the row of the table, or other approximation
    "sor": ["quinonero2005"],
    "dtc": ["quinonero2005"],
    "vfe": ["titsias2009"],
    "fitc": ["snelson2006"],
    "fic": ["snelson2006", "quinonero2005"],
    "pitc": ["quinonero2005"],
    "pic": ["snelson2007"],
    "pep": ["bui2017"],
    "neighbours": ["vecchia1988", "snelson2006"],
}


def citation(model: Any = None) -> str:
    """Return BibTeX of this package and of the methods that a fitted estimator used: its approximation,
    basis, likelihood and noise, its stream, and jackknife+ intervals.
    """
    keys = set() if model is None else _keys(model)
    title = "inducing: sparse {Gaussian} processes under one notation"
    software = f"@software{{inducing,\n  author = {{The inducing contributors}},\n  title = {{{title}}},\n"
    software += f"  version = {{{__version__}}}\n}}\n"
    return "\n".join([software, *(entry for key, entry in works().items() if key in keys)])


def works() -> dict[str, str]:
    """Return the entries of works.bib by their keys, in the file's order."""
    entries = files(__package__).joinpath("works.bib").read_text(encoding="utf-8").strip().split("\n\n")
    return {entry.partition("{")[2].partition(",")[0]: f"{entry}\n" for entry in entries}


def _keys(model: Any) -> set[str]:
    """Return the keys of the works that a fitted model rests on."""
    name = str(getattr(model, "approximation_", getattr(model, "approximation", "")))
    posterior = getattr(model, "posterior_", None)
    posterior = getattr(posterior, "posterior", posterior)  # the process of a predictor along neighbours
    keys = {"rasmussen2006", *_ROWS.get(name, [])}
    if isinstance(getattr(posterior, "basis", None), Multiscale):
        keys.add("walder2008")
    likelihood = getattr(model, "likelihood_", None)
    if isinstance(likelihood, LearnedNoise):
        keys.add("goldberg1998")
    elif likelihood is not None and not isinstance(likelihood, Gaussian):
        keys |= {"titsias2009"} if name == "vfe" else {"minka2001"}
    if hasattr(model, "partial_fit"):
        keys.add("csato2002")
    if vars(model).get("_jackknife") is not None:
        keys.add("barber2021")
    return keys
