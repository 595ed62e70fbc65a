"""The scikit-learn surface: estimators, checks, units and saving. May import every room but `cli`."""
