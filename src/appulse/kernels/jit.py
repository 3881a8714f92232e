"""The one decorator that owns every compiler flag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])

# Sums may be reordered, so that reductions use SIMD. NaN and infinity keep their meaning: "nnan" and "ninf"
# would let the compiler drop a sigma of zero. The tolerance of every comparison (1e-9) is far above the rounding
# that reordering and fused multiply-add move.
_REORDER = {"reassoc", "contract", "nsz"}


def kernel(function: F) -> F:
    """Compile ``function`` on first use, without Python objects, and keep the machine code on disk."""
    return cast("F", numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_REORDER)(function))


def exact_kernel(function: F) -> F:
    """As `kernel`, with every operation rounded as written: for numbers that two processes must agree on to the bit."""
    return cast("F", numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def inlined_kernel(function: F) -> F:
    """As `exact_kernel`, put into its callers: a call that takes ten arrays may cost as much as what is done."""
    return cast("F", numba.njit(cache=True, nogil=True, error_model="numpy", forceinline=True)(function))
