"""Records of predictors along neighbours for several classes, which share their training inputs."""

from collections.abc import Sequence

import numpy as np

from ..files.records import ROWS_PREFIX, Arrays, Plain, array, expect
from ..model.posterior import Posterior
from ..numerics.arrays import to_numpy
from .neighbours import NeighboursPredictor


def classes_record(predictors: Sequence[Posterior | NeighboursPredictor]) -> tuple[Plain, Arrays]:
    """The training rows of the predictors of several classes, which share inputs; nothing of posteriors."""
    near = [predictor for predictor in predictors if isinstance(predictor, NeighboursPredictor)]
    if not near:
        return {}, {}
    rows = {
        "X": to_numpy(near[0].data.X),
        "residuals": np.stack([to_numpy(p.data.residuals[:, 0]) for p in near], axis=1),
        "noise": np.stack([to_numpy(p.data.noise) for p in near], axis=1),
    }
    return {"n_neighbours": near[0].n_neighbours}, {ROWS_PREFIX + name: a for name, a in rows.items()}


def classes_from(
    plain: Plain, arrays: Arrays, posteriors: Sequence[Posterior]
) -> tuple[NeighboursPredictor, ...]:
    """The predictors that `classes_record` has described; raise if its parts do not fit together."""
    columns = [array(arrays, ROWS_PREFIX + name, 2) for name in ("residuals", "noise")]
    for name, a in zip(("residuals", "noise"), columns, strict=True):
        expect(a.shape[1] == len(posteriors), ROWS_PREFIX + name, a)
    predictors = []
    for j, posterior in enumerate(posteriors):
        own = {ROWS_PREFIX + "residuals": columns[0][:, [j]], ROWS_PREFIX + "noise": columns[1][:, j]}
        predictors.append(NeighboursPredictor.from_record(plain, arrays | own, posterior))
    return tuple(predictor.beside(predictors[0]) for predictor in predictors)
