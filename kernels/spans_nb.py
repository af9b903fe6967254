"""The `spans` kernel in Numba."""

from collections.abc import Sequence

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastpack.kernels.jit import jit

AHEAD = 8  # spans between the prefetch of a span's first cache line and its copy; see spans_cy


@intrinsic
def _prefetch(context, array, index):  # noqa: ARG001
    """Prefetch the cache line of array[index]."""

    def codegen(_context, builder, signature, args):
        view = _context.make_array(signature.args[0])(_context, builder, args[0])
        address = builder.bitcast(builder.gep(view.data, [args[1]]), ir.IntType(8).as_pointer())
        i32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, i32, i32, i32])
        name = "llvm.prefetch.p0" if "*" not in str(address.type) else "llvm.prefetch.p0i8"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(function, [address, i32(0), i32(2), i32(1)])
        return _context.get_dummy_value()

    return types.void(array, types.int64), codegen


@jit
def copy_spans(data, starts, targets, lengths, out):
    """Copy spans of bytes: out[targets[i] : targets[i] + lengths[i]] = data[starts[i] : starts[i] + lengths[i]].

    See `fastpack.kernels.spans_np.copy_spans`.
    """
    n = len(starts)
    if len(targets) != n or len(lengths) != n:
        raise ValueError("starts, targets and lengths must have one length")
    for i in range(n):
        ahead = min(i + AHEAD, n - 1)
        _prefetch(data, starts[ahead])
        _prefetch(out, targets[ahead])
        start, target, length = starts[i], targets[i], lengths[i]
        if start < 0 or target < 0 or length < 0 or length > len(data) - start or length > len(out) - target:
            raise ValueError("a span outside data or out")
        span = data[start : start + length]
        place = out[target : target + length]
        for k in range(length):
            place[k] = span[k]


def compile_all(_token_dtypes: Sequence[str], _out_dtypes: Sequence[str]) -> None:
    """Compile for writeable and read-only data (a read-only array is another signature)."""
    one = np.zeros(1, np.int64)
    for writeable in (True, False):
        data = np.zeros(1, np.uint8)
        data.flags.writeable = writeable
        copy_spans(data, one, one, one + 1, np.zeros(1, np.uint8))
