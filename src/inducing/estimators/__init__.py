"""The scikit-learn surface: estimators with checks, units, recipes by name and saving."""
