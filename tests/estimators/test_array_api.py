"""Scikit-learn's check of array API input, which wants a variable set before SciPy is imported, and so a
process of its own: one for all estimators.
"""

import os
import subprocess
import sys

CODE = """
from sklearn.utils.estimator_checks import estimator_checks_generator
import inducing as ig
models = ig.SparseGPRegressor(), ig.SparseGPRegressor(n_inducing=8)
models += ig.SparseGPRegressor(approximation="exact"), ig.SparseGPClassifier()
models += ig.OnlineGPRegressor(), ig.MultiscaleKernelRidge(), ig.MultiscaleSVM()
for model in models:
    checks = [check for check in estimator_checks_generator(model) if "array_api" in str(check[1])]
    assert checks
    for estimator, check in checks:
        check(estimator)
    print(model)
"""


def test_scikit_learn_contract_for_array_api_input():
    words, variables = [sys.executable, "-c", CODE], os.environ | {"SCIPY_ARRAY_API": "1"}
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 7, done.stderr
