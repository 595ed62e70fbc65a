"""What is assumed and what is believed, as values: kernels, prior means, bases, the table of approximations,
likelihoods, the checked problem and the posterior. No algorithm that learns lives here. May import
`numerics`.
"""
