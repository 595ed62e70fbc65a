"""The exact GP without a factor of K: conjugate gradients, and products with kernel matrices that are never
stored.
"""
