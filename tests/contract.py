"""What the estimators' tests share: scikit-learn's checks that need a process of their own."""

import os
import subprocess
import sys

CODE = """
from sklearn.utils.estimator_checks import estimator_checks_generator
import inducing as ig
checks = [check for check in estimator_checks_generator(ig.{name}()) if "array_api" in str(check[1])]
assert checks
for estimator, check in checks:
    check(estimator)
"""


def check_array_api_input(name: str) -> None:
    """This one check wants a variable set before SciPy is imported."""
    variables = os.environ | {"SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(name=name)], env=variables, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
