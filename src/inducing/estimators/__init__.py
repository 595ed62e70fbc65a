"""The scikit-learn surface: checks, units, recipes by name, saving. May import every room but `cli`."""
