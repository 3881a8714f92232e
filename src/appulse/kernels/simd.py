"""What processors do to 16 numbers at once, and compilers do not find by themselves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Floats32, Whole

    Lanes = Callable[[Floats, Whole, Whole, Floats, Whole, Whole, float, Whole], int]

LANES = 16
_cgutils: Any = cgutils  # which have no types themselves
_types: Any = types
_WORD, _INDEX, _BYTE = ir.IntType(32), ir.IntType(64), ir.IntType(8)
_WORDS = ir.VectorType(_WORD, LANES)
_BYTES = ir.VectorType(_BYTE, LANES)
_DOUBLE = ir.DoubleType()
_DOUBLES = ir.VectorType(_DOUBLE, LANES)
_FLOAT = ir.FloatType()
_FLOATS = ir.VectorType(_FLOAT, LANES)


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any, pointed: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), pointed.as_pointer())


def _meeting(_context: Any, blocks: Any, at: Any, least: Any, most: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def load(place: Any) -> Any:
            return builder.load(_place(context, builder, signature.args[0], args[0], place, _WORDS), align=4)

        def everywhere(value: Any) -> Any:
            first = builder.insert_element(ir.Constant(_WORDS, ir.Undefined), value, ir.Constant(_WORD, 0))
            return builder.shuffle_vector(first, first, ir.Constant(_WORDS, [0] * LANES))

        lows, highs = load(args[1]), load(builder.add(args[1], ir.Constant(_INDEX, LANES)))
        starts = builder.icmp_signed("<=", lows, everywhere(args[3]))
        ends = builder.icmp_signed(">=", highs, everywhere(args[2]))
        return builder.zext(builder.bitcast(builder.and_(starts, ends), ir.IntType(LANES)), _WORD)

    del at, least, most
    return types.uint32(blocks, types.int64, types.int32, types.int32), code


def _everywhere(builder: Any, value: Any, kind: Any = None) -> Any:
    """Sixteen times one number."""
    first = builder.insert_element(ir.Constant(kind or _DOUBLES, ir.Undefined), value, ir.Constant(_WORD, 0))
    return builder.shuffle_vector(first, first, ir.Constant(_WORDS, [0] * LANES))


def _squares(d: int, context: Any, builder: Any, kinds: Any, args: Any) -> Any:
    """The squared distances of 16 points from one, in ``d`` dimensions."""
    own_data, place, own_step, data, first, step = args
    total = None
    for _ in range(d):
        mine = builder.load(_place(context, builder, kinds[0], own_data, place, _DOUBLE))
        theirs = builder.load(_place(context, builder, kinds[3], data, first, _DOUBLES), align=8)
        gap = builder.fsub(_everywhere(builder, mine), theirs)
        square = builder.fmul(gap, gap, flags=("contract",))
        total = square if total is None else builder.fadd(total, square, flags=("contract",))
        place, first = builder.add(place, own_step), builder.add(first, step)
    return total


def _bits(builder: Any, lanes: Any) -> Any:
    return builder.zext(builder.bitcast(lanes, ir.IntType(LANES)), _INDEX)


def _of_lanes(d: int, chosen: Callable[[Any, Any, Any, Any], Any]) -> Any:
    """A kernel of one point and 16 others, of whose squared distances ``chosen`` makes a whole number."""

    def typed(_context: Any, own: Any, s: Any, n: Any, others: Any, at: Any, m: Any, limit2: Any, kept: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            squares = _squares(d, context, builder, signature.args, args[:6])
            return chosen(builder, squares, args[6], args[7])

        del s, n, at, m, limit2, kept
        index, real = types.int64, types.float64
        return index(own, index, index, others, index, index, real, index), code

    return intrinsic(typed)


def _closeness(builder: Any, squares: Any, most: Any, mask: Any) -> Any:
    """How many are within a limit."""
    close = builder.fcmp_ordered("<=", squares, _everywhere(builder, most))
    return builder.ctpop(builder.and_(_bits(builder, close), mask))


def _nearness(builder: Any, squares: Any, most: Any, mask: Any) -> Any:
    """The bits of the least ones; none, where these are beyond the limit."""
    flags = builder.bitcast(builder.trunc(mask, ir.IntType(LANES)), ir.VectorType(ir.IntType(1), LANES))
    squares = builder.select(flags, squares, ir.Constant(_DOUBLES, [math.inf] * LANES))
    least, half = squares, LANES // 2
    while half:
        one, other = (
            builder.shuffle_vector(
                least, least, ir.Constant(ir.VectorType(_WORD, half), list(range(first, first + half)))
            )
            for first in (0, half)
        )
        least, half = builder.select(builder.fcmp_ordered("<", one, other), one, other), half // 2
    least = builder.extract_element(least, ir.Constant(_WORD, 0))
    same = builder.and_(_bits(builder, builder.fcmp_ordered("==", squares, _everywhere(builder, least))), mask)
    return builder.select(builder.fcmp_ordered("<=", least, most), same, ir.Constant(_INDEX, 0))


def _prefetch(_context: Any, data: Any, at: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature.args[0], args[0], args[1], _BYTE)
        kind = ir.FunctionType(ir.VoidType(), [place.type, _WORD, _WORD, _WORD])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        reading, to_keep, data_not_code = (ir.Constant(_WORD, value) for value in (0, 3, 1))
        builder.call(fetch, [place, reading, to_keep, data_not_code])
        return context.get_dummy_value()

    del at
    return types.void(data, types.int64), code


def _shift(_context: Any, target: Any, at: Any, source: Any, begin: Any, many: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = [
            builder.bitcast(
                _place(context, builder, signature.args[k], args[k], args[k + 1], _INDEX), _BYTE.as_pointer()
            )
            for k in (0, 2)
        ]
        move = builder.module.declare_intrinsic("llvm.memmove", [places[0].type, places[1].type, _INDEX])
        size = builder.mul(args[4], ir.Constant(_INDEX, 8))
        builder.call(move, [*places, size, ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    del at, begin, many
    return types.void(target, types.int64, source, types.int64, types.int64), code


def _move(_context: Any, target: Any, at: Any, source: Any, begin: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, place = (_place(context, builder, signature.args[k], args[k], args[k + 1], _BYTES) for k in (0, 2))
        builder.store(builder.load(place, align=1), to, align=1)
        return context.get_dummy_value()

    del at, begin
    return types.void(target, types.int64, source, types.int64), code


def _word(_context: Any, data: Any, at: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_place(context, builder, signature.args[0], args[0], args[1], _INDEX), align=1)

    del at
    return types.uint64(data, types.int64), code


def _halve(_context: Any, values: Any, at: Any, centre: Any, scale: Any, out: Any, to: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        own = builder.load(_place(context, builder, signature.args[0], args[0], args[1], _DOUBLES), align=8)
        placed = builder.fmul(builder.fsub(own, _everywhere(builder, args[2])), _everywhere(builder, args[3]))
        place = _place(context, builder, signature.args[4], args[4], args[5], _FLOATS)
        builder.store(builder.fptrunc(placed, _FLOATS), place, align=4)
        return context.get_dummy_value()

    del at, centre, scale, to
    index, real = types.int64, types.float64
    return types.void(values, index, real, real, out, index), code


def _close_to_four(_context: Any, data: Any, step: Any, four: Any, at: Any, blocks: Any, band: Any) -> Any:
    """One loop over all of the others: what it counts stays in registers, 16 counts at once."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        room, step, four, at, blocks, band = args

        def load(place: Any, k: int, kind: Any) -> Any:
            place = builder.add(place, builder.mul(step, ir.Constant(_INDEX, k)))
            return builder.load(_place(context, builder, signature.args[0], room, place, kind), align=4)

        own = []
        for k in range(4):
            x, y, z, norm = (load(builder.extract_value(four, k), axis, _FLOAT) for axis in range(4))
            edge = builder.fsub(builder.fsub(ir.Constant(_FLOAT, -0.5), norm), band)
            own.append([_everywhere(builder, value, _FLOATS) for value in (x, y, z, edge)])
        beyond = _cgutils.alloca_once_value(builder, ir.Constant(_WORDS, [0] * LANES))
        least = _cgutils.alloca_once_value(builder, ir.Constant(_WORDS, [-1] * LANES))
        with _cgutils.for_range(builder, blocks) as loop:
            first = builder.add(at, builder.mul(loop.index, ir.Constant(_INDEX, LANES)))
            *theirs, norm = (load(first, axis, _FLOATS) for axis in range(4))
            for *point, edge in own:
                total = norm
                for one, other in zip(point, theirs, strict=True):
                    total = builder.fadd(builder.fmul(one, other, flags=("contract",)), total, flags=("contract",))
                # Below the edge the sign is set: such a number is one more that is beyond, and a large whole number.
                above = builder.bitcast(builder.fsub(total, edge), _WORDS)
                sign = builder.lshr(above, ir.Constant(_WORDS, [31] * LANES))
                builder.store(builder.add(builder.load(beyond), sign), beyond)
                kept = builder.load(least)
                builder.store(builder.select(builder.icmp_unsigned("<", above, kept), above, kept), least)
        far = builder.zext(_halved(builder, builder.load(beyond), builder.add), _INDEX)

        def lower(one: Any, other: Any) -> Any:
            return builder.select(builder.icmp_unsigned("<", one, other), one, other)

        nearest = _halved(builder, builder.load(least), lower)
        width = builder.bitcast(builder.fadd(band, band), _WORD)
        near = builder.sub(builder.mul(blocks, ir.Constant(_INDEX, 4 * LANES)), far)
        certain = builder.icmp_unsigned(">", nearest, width)
        return builder.select(certain, near, ir.Constant(_INDEX, -1))

    index = types.int64
    del step, four, at, blocks, band
    return index(data, index, _types.UniTuple(index, 4), index, index, types.float32), code


def _halved(builder: Any, words: Any, join: Callable[[Any, Any], Any]) -> Any:
    """One number of 16, from halves that are joined."""
    half = LANES // 2
    while half:
        one, other = (
            builder.shuffle_vector(words, words, ir.Constant(ir.VectorType(_WORD, half), list(range(k, k + half))))
            for k in (0, half)
        )
        words, half = join(one, other), half // 2
    return builder.extract_element(words, ir.Constant(_WORD, 0))


def _fma(_context: Any, x: Any, y: Any, z: Any) -> Any:
    def code(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    real = types.float64
    del x, y, z
    return real(real, real, real), code


#: ``meeting(data, at, least, most)``: a bit for each of the 16 ranges whose lows are the numbers from ``data[at]`` on,
#: and whose highs follow them: whether it meets the range from ``least`` to ``most``. ``data`` is taken as flat.
meeting = cast("Callable[[NDArray[np.int32], Whole, np.int32, np.int32], np.uint32]", intrinsic(_meeting))

#: ``prefetch(data, at)``: have the memory around ``data[at]`` on its way. ``data`` is taken as flat.
prefetch = cast("Callable[[NDArray[Any], Whole], None]", intrinsic(_prefetch))

#: ``shift(target, at, source, begin, many)``: copy so many numbers of 64 bits, which may overlap; the library's way
#: with a few of them is several times as fast as a loop, whose end no processor foresees.
shift = cast("Callable[[NDArray[Any], Whole, NDArray[Any], Whole, Whole], None]", intrinsic(_shift))

#: ``move(target, at, source, begin)``: copy 16 bytes.
move = cast("Callable[[NDArray[Any], Whole, NDArray[Any], Whole], None]", intrinsic(_move))

#: ``word(data, at)``: the eight bytes from ``data[at]`` on as one number.
word = cast("Callable[[NDArray[np.uint8], Whole], np.uint64]", intrinsic(_word))

#: ``lowest(bits)``: the place of the lowest bit that is set; one is.
lowest = cast("Callable[[Whole | np.uint32], int]", trailing_zeros)

#: ``close_2(own, s, n, others, at, m, limit2, kept)`` and so on: how many of 16 points are close to one, of those
#: whose bits are ``kept``. Coordinates of the one are ``own[s], own[s + n], ...``, the first ones of the 16 begin at
#: ``others[at]``, their second ones m further. Close is a squared distance of at most ``limit2``.
close_2, close_3, close_4, close_5 = (cast("Lanes", _of_lanes(d, _closeness)) for d in (2, 3, 4, 5))

#: ``nearest_3``, likewise: the bit of the nearest of them, or the bits of several; 0 where none is close.
nearest_3 = cast("Lanes", _of_lanes(3, _nearness))

#: ``halve(values, at, centre, scale, out, to)``: 16 numbers, less the centre and times the scale, in single precision.
halve = cast("Callable[[Floats, Whole, float, float, Floats32, Whole], None]", intrinsic(_halve))

#: ``close_to_four(data, step, four, at, blocks, band)``: how many pairs are close, of four points and 16 times so many
#: others; -1 where rounding may have turned some. Points lie in ``data`` by coordinate, in three rows ``step`` apart;
#: the fourth has half the squared norms, negated. Close is a distance of at most 1; half its square has lost ``band``.
close_to_four = cast(
    "Callable[[Floats32, Whole, tuple[Whole, Whole, Whole, Whole], Whole, Whole, np.float32], int]",
    intrinsic(_close_to_four),
)

#: ``fma(x, y, z)``: x * y + z, rounded once, by every processor to the same bit.
fma = cast("Callable[[float, float, float], float]", intrinsic(_fma))
