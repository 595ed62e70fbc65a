"""The assumptions and beliefs of a model as values: kernels, prior means, bases, the table of approximations,
likelihoods, the checked problem and the posterior. No algorithm that learns lives here. May import
`numerics`.
"""
