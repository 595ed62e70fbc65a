"""Dense references for the methods beside the table, formula by formula. Nothing here comes from the package.

Sources: 003 Quinonero-Candela & Rasmussen 2005 §§7-10; Tresp 2000 (committees); Deisenroth & Ng 2015 (robust
ones).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from oracle import Array, Basis, Kernel, condition, joint_prior, noise_vector, q_matrix


def exact(k: Kernel, noise: Any, X: Array, y: Array, Xs: Array) -> tuple[Array, Array]:
    """003 eq. 6."""
    return condition((k(X, X), k(X, Xs), k(Xs, Xs)), noise, y)


def experts(
    k: Kernel, noise: Any, X: Array, y: Array, Xs: Array, blocks: Any
) -> Iterator[tuple[Array, Array]]:
    """What an exact GP on each block says of Xs."""
    s2 = noise_vector(noise, len(X))
    for label in np.unique(blocks):
        rows = np.asarray(blocks) == label
        yield exact(k, s2[rows], X[rows], y[rows], Xs)


def tresp(k: Kernel, noise: Any, X: Array, y: Array, Xs: Array, blocks: Any) -> tuple[Array, Array]:
    """Product of the experts' joint posteriors over the prior to the power of their number less one. [Tresp
    2000]
    """
    M = len(np.unique(blocks))
    precision, information = -(M - 1) * np.linalg.inv(k(Xs, Xs)), np.zeros((len(Xs), *y.shape[1:]))
    for mean, cov in experts(k, noise, X, y, Xs, blocks):
        precision = precision + np.linalg.inv(cov)
        information = information + np.linalg.solve(cov, mean)
    return np.linalg.solve(precision, information), np.linalg.inv(precision)


def marginal_committee(
    rule: str, k: Kernel, noise: Any, X: Array, y: Array, Xs: Array, blocks: Any
) -> tuple[Array, Array]:
    """Product of experts, its generalisation, the BCM of one query and the robust BCM. [Deisenroth, Ng
    2015]
    """
    M, prior = len(np.unique(blocks)), np.diag(k(Xs, Xs))
    precision, information = np.zeros(len(Xs)), np.zeros((*y.shape[1:], len(Xs)))
    for mean, cov in experts(k, noise, X, y, Xs, blocks):
        var = np.diag(cov)
        beta = {"poe": 1.0, "gpoe": 1.0 / M, "bcm": 1.0, "rbcm": 0.5 * (np.log(prior) - np.log(var))}[rule]
        precision = precision + beta / var
        information = information + beta * mean.T / var
        if rule in ("bcm", "rbcm"):
            precision = precision - beta / prior
    if rule in ("bcm", "rbcm"):
        precision = precision + 1.0 / prior
    return (information / precision).T, 1.0 / precision


def nystrom_prior(k: Kernel, basis: Basis, X: Array, Xs: Array) -> tuple[Array, Array, Array]:
    """003 eq. 31."""
    return q_matrix(basis, X, X), k(X, Xs), k(Xs, Xs)


def with_points(k: Kernel, basis: Basis, Z: Array) -> Basis:
    """The basis and f(Z): Gram matrix and covariances of both together. [003 §8.1]"""
    C = basis.cross(Z)
    return Basis(np.block([[basis.gram, C.T], [C, k(Z, Z)]]), lambda A: np.hstack([basis.cross(A), k(A, Z)]))


def augmented(
    name: str, k: Kernel, basis: Basis, noise: Any, X: Array, y: Array, Xs: Array, **row: Any
) -> tuple[Array, Array]:
    """Mean and variance of each query with its own f* added to u. [003 §8.1, eq. 28 for SoR]"""
    found = [
        condition(joint_prior(name, k, with_points(k, basis, x[None]), X, x[None], **row), noise, y)
        for x in Xs
    ]
    return np.array([mean[0] for mean, _ in found]), np.array([cov[0, 0] for _, cov in found])
