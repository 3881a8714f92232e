"""Arrays that NumPy or Arrow made, by their place in memory: to a kernel, one number in place of an array.

Where a kernel takes forty arrays, to hand them over and to count their users takes longer than what is done for a few
rows. Callers keep the arrays, and know when one has moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numba import types
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from appulse.kernels.jit import inlined_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from appulse.kernels.arrays import ByteArray, Floats, Hashes, Ints, Whole


def _of_address(_context: Any, address: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.voidptr(address), code


_pointer = cast("Callable[[Whole], Any]", intrinsic(_of_address))


@inlined_kernel
def ints_at(address: Whole, n: Whole) -> Ints:
    """So many whole numbers."""
    found: Ints = carray(_pointer(address), (n,), np.int64)
    return found


@inlined_kernel
def floats_at(address: Whole, n: Whole) -> Floats:
    """So many numbers."""
    found: Floats = carray(_pointer(address), (n,), np.float64)
    return found


@inlined_kernel
def bytes_at(address: Whole, n: Whole) -> ByteArray:
    """So many bytes."""
    found: ByteArray = carray(_pointer(address), (n,), np.uint8)
    return found


@inlined_kernel
def hashes_at(address: Whole, n: Whole) -> Hashes:
    """So many words."""
    found: Hashes = carray(_pointer(address), (n,), np.uint64)
    return found
