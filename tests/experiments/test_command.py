"""`python -m experiments`: the list, one run, its page and its seeds."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments import EXPERIMENTS
from experiments.__main__ import app
from experiments.report import Report


def run(*words):
    return CliRunner().invoke(app, words)


def test_without_names_all_are_listed():
    result = run()
    assert result.exit_code == 0
    assert all(name in result.output for name in EXPERIMENTS)


def test_an_unknown_name_is_told():
    assert "no experiment 'X9'" in str(run("X9").exception or run("X9").output)


def test_another_seed_draws_other_data_and_the_page_says_so(tmp_path):
    found = {}
    for seed in (0, 3):
        folder = tmp_path / str(seed)
        options = ["--seed", str(seed)] if seed else []
        assert run("C1", "--quick", *options, "--output", str(folder)).exit_code == 0
        page = (folder / "C1" / "README.md").read_text(encoding="utf-8")
        assert ("`python -m experiments C1 --quick`" in page) is (seed == 0)
        assert ("`python -m experiments C1 --quick --seed 3`" in page) is (seed == 3)
        found[seed] = json.loads((folder / "C1" / "values.json").read_text(encoding="utf-8"))
    assert found[0] != found[3]


def test_seeds_of_two_runs_never_meet():
    runs = [Report("X", "", "", quick=True, seed=seed) for seed in (0, 1, 2)]
    drawn = [{*report.seeds(50), *report.seeds(50, 10_000)} for report in runs]
    assert drawn[0] == {*range(50), *range(10_000, 10_050)}
    assert not drawn[0] & drawn[1] and not drawn[1] & drawn[2]
    assert runs[0].rng(4).random() == np.random.default_rng(4).random()
    assert runs[1].rng(4).random() != runs[0].rng(4).random()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_where_the_table_says(name):
    from importlib import import_module

    entry = EXPERIMENTS[name]
    assert callable(getattr(import_module(f"experiments.{entry.module}"), entry.function))
