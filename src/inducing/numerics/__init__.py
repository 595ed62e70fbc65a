"""Arrays and algebra that know nothing of Gaussian processes: namespaces, worker threads, factorisations,
BLAS by address, compiled loops, quadrature. Imports `errors` and nothing else of this package.
"""
