"""BibTeX of what a model used."""

import re

import numpy as np
import pytest

import inducing as ig
from inducing.estimators import citing

X, Y = ig.datasets.friedman1(60, rng=0)
SMALL = dict(n_inducing=5, max_iter=2, random_state=0)
CASES = {
    "fitc": (dict(approximation="fitc", basis="multiscale"), {"snelson2006", "walder2008"}),
    "vfe": (dict(approximation="vfe", basis="points"), {"titsias2009"}),
    "neighbours": (dict(approximation="neighbours", basis="points"), {"vecchia1988", "snelson2006"}),
    "learned": (dict(approximation="fitc", basis="points", noise="learned"), {"titsias2009", "goldberg1998"}),
    "poisson": (
        dict(approximation="fitc", basis="points", likelihood="poisson"),
        {"minka2001", "snelson2006"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_methods_of_a_model_are_cited(name):
    options, expected = CASES[name]
    y = np.round(Y) if "likelihood" in options else Y
    told = ig.citation(ig.SparseGPRegressor("rbf", **SMALL, **options).fit(X, y))
    assert set(re.findall(r"@\w+\{(\w+),", told)) == {"inducing", "rasmussen2006", *expected}


def test_every_entry_is_whole():
    works = citing.works()
    assert {key for row in citing._ROWS.values() for key in row} <= set(works) and len(works) == 12
    for entry in works.values():
        assert entry.count("{") == entry.count("}") and re.search(r"year = \{(19|20)\d\d\}", entry)
        assert "\n  title = {" in entry and "\n  author = {" in entry
    assert ig.citation().startswith("@software{inducing")
