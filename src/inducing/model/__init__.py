"""The parts of a model as immutable values: kernels, prior means, bases, the table of approximations,
likelihoods, the checked problem and the posterior. Nothing here learns from data. May import `numerics`.
"""
