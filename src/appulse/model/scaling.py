"""Values in other units: each dimension divided by a unit of its own, before anything is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.model.covariance import matrices, of_deviations, of_ellipses
from appulse.model.uncertainty import Ball, Gaussian, Held, Samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Floats


def scaled_model(model: Held, units: Sequence[float]) -> Held:
    """The model of values so divided: an error may no longer be the same in all directions.

    What a Gaussian's columns become has no columns; its covariance then names those of the coordinates.
    """
    if isinstance(model, Ball):
        if len(set(units)) > 1:
            return Samples(" ".join(model.columns), names=model.columns)
        radius = model.radius / units[0] if isinstance(model.radius, float) else model.radius
        return Ball(*model.columns, radius=radius, samples=model.samples)
    if not isinstance(model, Gaussian) or all(unit == 1.0 for unit in units):
        return model
    known = [error for error in model.errors if isinstance(error, float)]
    if len(set(units)) == 1 and model.isotropic:
        sigma = known[0] / units[0] if known else model.errors[0]
        return Gaussian(*model.columns, sigma=sigma, samples=model.samples)
    d = len(model.columns)
    entries: tuple[str | float, ...] = (model.columns[0],) * (d * (d + 1) // 2)
    if len(known) == len(model.errors):
        entries = tuple(scaled_spread(_spread(model, known), model, units)[0].tolist())
    return Gaussian(*model.columns, covariance=entries, samples=model.samples)


def scaled_spread(spread: Floats, model: Gaussian | Ball, units: Sequence[float]) -> Floats:
    """Spreads as `scaled_model` has them: one deviation or radius, or the upper triangle of a covariance."""
    if isinstance(model, Ball) or (len(set(units)) == 1 and model.isotropic) or len(units) == 1:
        return spread / units[0]
    d = len(units)
    whole = matrices(spread, d) / np.outer(units, units)
    rows, columns = np.triu_indices(d)
    found: Floats = whole[:, rows, columns]
    return found


def _spread(model: Gaussian, errors: Sequence[float]) -> Floats:
    """The spread of a row with these errors."""
    given = np.array([errors])
    if model.ellipse is not None:
        return of_ellipses(given)
    return given if model.covariance is not None or model.isotropic else of_deviations(given)
