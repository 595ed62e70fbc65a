"""The doctor on a healthy set-up, and on broken ones."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from inducing.cli import app
from inducing.estimators import doctor


def test_a_healthy_set_up_passes() -> None:
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    for word in ("numpy", "BLAS 1", "cores", "GPU", "compilation cache", "0 wrong", "All well."):
        assert word in result.output


@pytest.mark.parametrize("size", [8, 333])
def test_a_product_that_errs_in_one_entry_at_one_size_is_found(size: int) -> None:
    def product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        C = A @ B
        C[-1, -1] += len(C) == size
        return C

    about, problems = doctor.examine(product)
    assert ", 0 wrong" not in about["products"] and len(problems) == 1
    assert "matrix products are wrong" in problems[0] and "OPENBLAS_CORETYPE" in problems[0]


def test_an_engine_that_errs_ends_the_command_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "products_wrong", lambda product: (10, 0))
    monkeypatch.setattr(doctor, "engine_difference", lambda: float("nan"))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1 and "do not trust" in result.output.replace("\n", " ")


def test_the_engine_agrees_with_the_dense_formula() -> None:
    assert doctor.engine_difference() < 1e-10
