"""`citation`: BibTeX of this package and of the methods that a fitted model used."""

from typing import Any

from .. import __version__
from ..model.bases import Multiscale
from ..model.likelihoods import Gaussian, LearnedNoise

_WORKS = """
quinonero2005 | article | Quiñonero-Candela, Joaquin and Rasmussen, Carl Edward | 2005
A unifying view of sparse approximate {Gaussian} process regression
Journal of Machine Learning Research 6, 1939--1959
snelson2006 | inproceedings | Snelson, Edward and Ghahramani, Zoubin | 2006
Sparse {Gaussian} processes using pseudo-inputs
Advances in Neural Information Processing Systems 18
titsias2009 | inproceedings | Titsias, Michalis K. | 2009
Variational learning of inducing variables in sparse {Gaussian} processes
AISTATS 12, PMLR 5, 567--574
bui2017 | article | Bui, Thang D. and Yan, Josiah and Turner, Richard E. | 2017
A unifying framework for {Gaussian} process pseudo-point approximations using power expectation propagation
Journal of Machine Learning Research 18(104), 1--72
snelson2007 | inproceedings | Snelson, Edward and Ghahramani, Zoubin | 2007
Local and global sparse {Gaussian} process approximations
AISTATS 11, PMLR 2, 524--531
vecchia1988 | article | Vecchia, A. V. | 1988
Estimation and model identification for continuous spatial processes
Journal of the Royal Statistical Society B 50(2), 297--312
walder2008 | inproceedings | Walder, Christian and Kim, Kwang In and Schölkopf, Bernhard | 2008
Sparse multiscale {Gaussian} process regression
ICML 25, 1112--1119
csato2002 | phdthesis | Csató, Lehel | 2002
{Gaussian} processes: iterative sparse approximations
Aston University
minka2001 | phdthesis | Minka, Thomas P. | 2001
A family of algorithms for approximate {Bayesian} inference
Massachusetts Institute of Technology
rasmussen2006 | book | Rasmussen, Carl Edward and Williams, Christopher K. I. | 2006
{Gaussian} processes for machine learning
MIT Press
goldberg1998 | inproceedings | Goldberg, P. W. and Williams, Christopher K. I. and Bishop, C. M. | 1998
Regression with input-dependent noise: a {Gaussian} process treatment
Advances in Neural Information Processing Systems 10
barber2021 | article | Barber, Rina F. and Candès, Emmanuel J. and Ramdas, A. and Tibshirani, R. J. | 2021
Predictive inference with the jackknife+
The Annals of Statistics 49(1), 486--507
"""
_ROWS = {  # of the table, and beside it
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
_FIELDS = {"article": "journal", "inproceedings": "booktitle", "phdthesis": "school", "book": "publisher"}


def citation(model: Any = None) -> str:
    """BibTeX of this package and, of a fitted estimator, of the methods it used: its row of the table, its
    basis, likelihood and noise, its stream, and conformal bands that it was calibrated for.
    """
    keys = [] if model is None else sorted(_keys(model))
    title = "inducing: sparse {Gaussian} processes under one notation"
    software = f"@software{{inducing,\n  author = {{The inducing contributors}},\n  title = {{{title}}},\n"
    software += f"  version = {{{__version__}}}\n}}\n"
    return "\n".join([software, *map(_entry, keys)])


def _keys(model: Any) -> set[str]:
    """The works that a fitted model rests on."""
    name = str(getattr(model, "approximation_", getattr(model, "approximation", "")))
    posterior = getattr(model, "posterior_", None)
    posterior = getattr(posterior, "posterior", posterior)  # of a predictor along neighbours, its process
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


def _entry(key: str) -> str:
    """One work in BibTeX."""
    lines = _WORKS.strip().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{key} |"))
    _, kind, author, year = lines[at].split(" | ")
    title, place = lines[at + 1 : at + 3]
    fields = {"author": author, "title": title, _FIELDS[kind]: place, "year": year}
    inside = ",\n".join(f"  {name} = {{{text}}}" for name, text in fields.items())
    return f"@{kind}{{{key},\n{inside}\n}}\n"
