"""Ways to choose the model: the objective and its variables, the optimiser, recipes of several stages,
judging and diagnosis. May import the rooms from `numerics` to `inference`.
"""
