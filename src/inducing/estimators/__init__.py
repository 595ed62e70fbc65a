"""The scikit-learn surface, one file a class: checks, units, recipes by name, saving. Nothing mathematical
lives here. May import every room but `cli`.
"""
