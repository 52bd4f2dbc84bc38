"""Eight columns of a row as one value in registers.

numba compiles the short loops over columns to scalar code (its pass that would join them is off, for
good reasons), so kernels that hold a row of sums say what they mean: :func:`take` eight columns,
calculate with ``+ - *``, :func:`put` them back. LLVM maps the eight lanes to whatever the processor has.
"""

import operator

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, overload, register_model

from spectrograd.kernels import LANES

WIDTH = LANES


class Lanes(types.Type):
    """Eight floats of one type."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, ir.VectorType(dmm.lookup(fe_type.dtype).get_value_type(), WIDTH))


def _address(context, builder, signature, args, lanes):
    """Where eight lanes begin, from a C-contiguous array, a row and its first column."""
    array_type = signature.args[0]
    # no bounds check and no negative indices: a row of a C-contiguous array is LANES numbers in a row
    view = context.make_array(array_type)(context, builder, args[0])
    indices = [context.cast(builder, args[a], signature.args[a], types.intp) for a in (1, 2)]
    address = cgutils.get_item_pointer(context, builder, array_type, view, indices, wraparound=False)
    return builder.bitcast(address, context.get_value_type(lanes).as_pointer())


@intrinsic
def take(typing, array, row, column):
    """Eight columns of a row, from ``column`` on."""
    lanes = Lanes(array.dtype)

    def code(context, builder, signature, args):
        address = _address(context, builder, signature, args, lanes)
        # aligned to one number only: columns may begin anywhere
        return builder.load(address, align=array.dtype.bitwidth // 8)

    return lanes(array, row, column), code


@intrinsic
def take_one(typing, array, row, column):
    """One number in all eight lanes."""
    lanes = Lanes(array.dtype)

    def code(context, builder, signature, args):
        address = _address(context, builder, signature, args, lanes)
        scalar = builder.load(builder.bitcast(address, address.type.pointee.element.as_pointer()))
        return _spread(builder, scalar, address.type.pointee)

    return lanes(array, row, column), code


@intrinsic
def put(typing, array, row, column, lanes):
    """Mutates: eight columns of a row of ``array``."""

    def code(context, builder, signature, args):
        address = _address(context, builder, signature, args, lanes)
        builder.store(args[3], address, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, row, column, lanes), code


@intrinsic
def take_first(typing, array, row, column, count):
    """The first ``count`` of eight lanes, for the end of a row; the others are zero."""
    lanes = Lanes(array.dtype)

    def code(context, builder, signature, args):
        address = _address(context, builder, signature, args, lanes)
        vector = address.type.pointee
        align, mask = _lane_mask(context, builder, array.dtype, args[3], count)
        load = _llvm(builder, vector, "llvm.masked.load", [address.type, align.type, mask.type, vector])
        # lanes without a column are not read: they may lie behind the array
        return builder.call(load, [address, align, mask, ir.Constant(vector, None)])

    return lanes(array, row, column, count), code


@intrinsic
def put_first(typing, array, row, column, count, lanes):
    """Mutates: the first ``count`` of eight columns of a row of ``array``."""

    def code(context, builder, signature, args):
        address = _address(context, builder, signature, args, lanes)
        align, mask = _lane_mask(context, builder, array.dtype, args[3], count)
        kinds = [args[4].type, address.type, align.type, mask.type]
        store = _llvm(builder, ir.VoidType(), "llvm.masked.store", kinds)
        builder.call(store, [args[4], address, align, mask])
        return context.get_dummy_value()

    return types.void(array, row, column, count, lanes), code


def _lane_mask(context, builder, dtype, count, count_type):
    """The alignment, and which lanes are below ``count``."""
    small = ir.IntType(32)
    numbers = ir.VectorType(small, WIDTH)
    limit = builder.trunc(context.cast(builder, count, count_type, types.int64), small)
    below = builder.icmp_signed(
        "<", ir.Constant(numbers, list(range(WIDTH))), _spread(builder, limit, numbers)
    )
    return small(dtype.bitwidth // 8), below


def _llvm(builder, result, name, argument_types):
    """LLVM's function for these vectors."""
    vector = next(t for t in [result, *argument_types] if isinstance(t, ir.VectorType))
    width = 32 if vector.element == ir.FloatType() else 64
    suffix = f".v{WIDTH}f{width}" + (".p0" if len(argument_types) > 2 else "")
    kind = ir.FunctionType(result, argument_types)
    return cgutils.get_or_insert_function(builder.module, kind, name + suffix)


@intrinsic
def spread(typing, value, like):
    """The same number in all lanes, in the type of ``like``."""

    def code(context, builder, signature, args):
        scalar = context.cast(builder, args[0], value, like.dtype)
        return _spread(builder, scalar, context.get_value_type(like))

    return like(value, like), code


def _spread(builder, scalar, vector_type):
    one = builder.insert_element(ir.Constant(vector_type, ir.Undefined), scalar, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(one, ir.Constant(vector_type, ir.Undefined), mask)


@intrinsic
def wide(typing, lanes):
    """The same numbers in float64."""
    double = Lanes(types.float64)

    def code(context, builder, signature, args):
        if lanes.dtype == types.float64:
            return args[0]
        return builder.fpext(args[0], context.get_value_type(double))

    return double(lanes), code


@intrinsic
def narrow(typing, lanes, like):
    """Numbers in float64 in the type of ``like``."""

    def code(context, builder, signature, args):
        if like.dtype == types.float64:
            return args[0]
        return builder.fptrunc(args[0], context.get_value_type(like))

    return like(lanes, like), code


@intrinsic
def nothing(typing, array):
    """Eight zeros in the type of ``array``."""
    lanes = Lanes(array.dtype)

    def code(context, builder, signature, args):
        return ir.Constant(context.get_value_type(lanes), None)

    return lanes(array), code


@intrinsic
def total(typing, lanes):
    """The sum of all lanes, always in the same order."""

    def code(context, builder, signature, args):
        values = [builder.extract_element(args[0], ir.IntType(32)(i)) for i in range(WIDTH)]
        while len(values) > 1:
            # pairwise, in a fixed tree
            values = [builder.fadd(x, y) for x, y in zip(values[::2], values[1::2], strict=True)]
        return values[0]

    return lanes.dtype(lanes), code


@intrinsic
def lowest_bit(typing, word):
    """The number of the lowest bit that is set."""

    def code(context, builder, signature, args):
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(word), code


def _binary(instruction):
    @intrinsic
    def apply(typing, x, y):
        def code(context, builder, signature, args):
            return getattr(builder, instruction)(*args)

        return x(x, y), code

    return apply


def _lanewise(name):
    """An LLVM function that works lane by lane, such as ``llvm.sqrt``."""

    def code(context, builder, signature, args):
        vector = args[0].type
        return builder.call(_llvm(builder, vector, name, [vector] * len(args)), args)

    return code


@intrinsic
def root(typing, x):
    """Square roots."""
    return x(x), _lanewise("llvm.sqrt")


@intrinsic
def largest(typing, x, y):
    """The larger of two, lane by lane."""
    return x(x, y), _lanewise("llvm.maxnum")


def _define(symbol, instruction):
    both = _binary(instruction)

    @overload(symbol, inline="always")
    def calculate(x, y):
        if isinstance(x, Lanes) and isinstance(y, Lanes):
            return lambda x, y: both(x, y)
        if isinstance(x, Lanes) and isinstance(y, types.Number):
            return lambda x, y: both(x, spread(y, x))
        if isinstance(x, types.Number) and isinstance(y, Lanes):
            return lambda x, y: both(spread(x, y), y)
        return None


for _symbol, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define(_symbol, _instruction)
