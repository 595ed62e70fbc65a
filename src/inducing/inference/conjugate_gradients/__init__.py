"""The exact GP without a factor of K: conjugate gradients, and products with K that is never stored."""
