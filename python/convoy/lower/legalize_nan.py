"""relu, clip, maximum, minimum, max, min, argmax, argmin and max pooling as loops that keep NaN.

PyTorch and ONNX keep a NaN, which is unequal to all numbers and to itself. Relay's networks
(:data:`IGNORES_NAN`) keep TVM's legalizations, which mostly drop it.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, te, tirx, topi

from ..graph.expr import dtype_of, ints, rank_of, shape_of
from ..graph.target import on_gpu
from ..ir.names import IGNORES_NAN
from ..tir.keep_nan import highest, larger, largest, lowest, smaller, smallest
from .default import FUSABLE, default_legalize

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def keeps_nan(mod: tvm.IRModule) -> bool:
    """Whether a module's relu, clip, maximum and so on keep NaN."""
    return mod.attrs is None or not mod.attrs.get(IGNORES_NAN, False)


def legalizations() -> dict[str, Legalize]:
    """The legalization of each operator by name; integers have TVM's."""
    return {
        "relax.nn.relu": _of_floats(_relu),
        "relax.clip": _of_floats(_clip),
        "relax.maximum": _of_floats(_pairwise(larger, "maximum")),
        "relax.minimum": _of_floats(_pairwise(smaller, "minimum")),
        "relax.logical_not": _not,
        "relax.bitwise_not": _not,
        "relax.equal": _of_floats(_equal),
        "relax.not_equal": _of_floats(_pairwise(_unequal, "not_equal")),
        "relax.max": _of_floats(_reduction(largest, "max")),
        "relax.min": _of_floats(_reduction(smallest, "min")),
        "relax.argmax": _of_floats(_place("argmax")),
        "relax.argmin": _of_floats(_place("argmin")),
        "relax.nn.max_pool1d": _max_pool,
        "relax.nn.max_pool2d": _max_pool,
        "relax.nn.max_pool3d": _max_pool,
    }


def _of_floats(legalize: Legalize) -> Legalize:
    def chosen(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        floats = dtype_of(call.args[0]).startswith(("float", "bfloat"))
        return (legalize if floats else default_legalize)(bb, call)

    return chosen


def _relu(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    zero = tirx.const(0.0, dtype_of(call))

    def relu(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: larger(x(*i), zero), name="relu")

    return bb.call_te(relu, call.args[0], primfunc_name_hint="relu")


def _not(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A selection: TVM takes ``not (a < b)`` for ``a >= b``, which is false where either is NaN."""
    if dtype_of(call.args[0]) != "bool":
        return default_legalize(bb, call)
    no, yes = (tirx.const(value, "bool") for value in (False, True))

    def opposite(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: tirx.Select(x(*i), no, yes), name="logical_not")

    return bb.call_te(opposite, call.args[0], primfunc_name_hint="logical_not")


def _clip(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    low, high = (tirx.const(float(b.value), dtype_of(call)) for b in call.args[1:])

    def clip(x: te.Tensor) -> te.Tensor:
        def element(*i: tirx.Expr) -> tirx.Expr:
            return larger(smaller(x(*i), high), low)

        return te.compute(x.shape, element, name="clip")

    return bb.call_te(clip, call.args[0], primfunc_name_hint="clip")


def _pairwise(choose: Callable[[tirx.Expr, tirx.Expr], tirx.Expr], name: str) -> Legalize:
    """Elementwise with broadcasting, as numpy's."""

    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        shape = shape_of(call)

        def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
            a, b = (topi.broadcast_to(x, shape) if _shape(x) != shape else x for x in (a, b))
            return te.compute(shape, lambda *i: choose(a(*i), b(*i)), name=name)

        return bb.call_te(compute, *call.args, primfunc_name_hint=name)

    return legalize


def _equal(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """TVM takes ``x == x`` for true, which it is not where x is NaN."""
    x, other = call.args
    if not x.same_as(other):
        return default_legalize(bb, call)
    no, yes = (tirx.const(value, "bool") for value in (False, True))

    def equal(x: te.Tensor) -> te.Tensor:
        wide = "float64" if str(x.dtype) == "float64" else "float32"
        return te.compute(
            x.shape, lambda *i: tirx.Select(tirx.isnan(x(*i).astype(wide)), no, yes), name="equal"
        )

    return bb.call_te(equal, x, primfunc_name_hint="equal")


def _unequal(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """LLVM's comparison is false where either is NaN."""
    wide = [x.astype("float32") if str(x.ty.dtype) == "bfloat16" else x for x in (a, b)]
    return a != b if on_gpu() else tirx.any(a != b, *map(tirx.isnan, wide))


def _reduction(reduce: te.CommReducer, name: str) -> Legalize:
    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        rank, shape = rank_of(call.args[0]), shape_of(call)
        given = call.attrs.axis
        axes = sorted({axis % rank for axis in ints(given)} if given is not None else range(rank))
        if not axes:
            return call.args[0]
        keep = bool(call.attrs.keepdims)

        def compute(x: te.Tensor) -> te.Tensor:
            reduced = [te.reduce_axis((0, x.shape[axis]), name=f"k{axis}") for axis in axes]

            def element(*index: tirx.Expr) -> tirx.Expr:
                rest = [i for n, i in enumerate(index) if not keep or n not in axes]
                for axis, variable in zip(axes, reduced, strict=True):
                    rest.insert(axis, variable)
                return reduce(x(*rest), axis=reduced)

            return te.compute(shape, element, name=name)

        return bb.call_te(compute, call.args[0], primfunc_name_hint=name)

    return legalize


def _place(name: str) -> Legalize:
    """The first place of NaN, or of the extreme: of numbers in the same order among which NaN is
    infinite, and what is infinite the most of float32."""

    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        wide = "float64" if dtype_of(call.args[0]) == "float64" else "float32"
        bound, infinite, limit = (
            (te.min, highest(wide), te.max_value(wide))
            if name == "argmax"
            else (te.max, lowest(wide), te.min_value(wide))
        )

        def compute(x: te.Tensor) -> te.Tensor:
            def key(*i: tirx.Expr) -> tirx.Expr:
                value = x(*i).astype(wide)
                return tirx.Select(tirx.isnan(value), infinite, bound(value, limit))

            keys = te.compute(x.shape, key, name="keys")
            return getattr(topi, name)(keys, call.attrs.axis, bool(call.attrs.keepdims))

        return bb.call_te(compute, call.args[0], primfunc_name_hint=name)

    return legalize


def _max_pool(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """In one, two or three axes of any layout; the type already knows ceil_mode."""
    layout = str(call.attrs.layout)
    spatial = [layout.index(axis) for axis in "DHW" if axis in layout]
    if str(call.attrs.out_layout or layout) != layout or len(layout) != len(spatial) + 2:
        return default_legalize(bb, call)  # packed channels
    out, dtype = shape_of(call), dtype_of(call)
    rank = len(spatial)
    window, stride, dilation, padding = (
        _repeated(ints(getattr(call.attrs, name)), rank * times)
        for name, times in (("pool_size", 1), ("strides", 1), ("dilation", 1), ("padding", 2))
    )

    def compute(x: te.Tensor) -> te.Tensor:
        before, after = [0] * len(layout), [0] * len(layout)
        for i, axis in enumerate(spatial):
            last = (out[axis] - 1) * stride[i] + (window[i] - 1) * dilation[i]
            before[axis] = padding[i]
            after[axis] = max(last - padding[i] - int(x.shape[axis]) + 1, 0)
        padded = x
        if any(before) or any(after):
            padded = topi.nn.pad(x, before, after, lowest(dtype), name="padded")
        reduced = [te.reduce_axis((0, size), name=f"r{i}") for i, size in enumerate(window)]

        def element(*index: tirx.Expr) -> tirx.Expr:
            place = list(index)
            for i, axis in enumerate(spatial):
                place[axis] = index[axis] * stride[i] + reduced[i] * dilation[i]
            return largest(padded(*place), axis=reduced)

        return te.compute(out, element, name="pooled")

    return bb.call_te(
        compute, call.args[0], primfunc_name_hint=f"max_pool{rank}d", primfunc_attrs=FUSABLE
    )


def _repeated(values: tuple[int, ...], count: int) -> tuple[int, ...]:
    return values * (count // len(values))


def _shape(x: te.Tensor) -> tuple[int, ...]:
    return tuple(int(size) for size in x.shape)
