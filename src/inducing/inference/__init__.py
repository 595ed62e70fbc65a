"""Ways to make a posterior with the model given: batch, exact, conjugate gradients, online, expectation
propagation, vector fields; and choosing a basis. May import the rooms from `numerics` to `engine`.
"""
