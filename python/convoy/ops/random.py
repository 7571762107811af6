"""``convoy.uniform``: random numbers as a function of a state and of a position, on any target.

Whoever reads the same numbers twice, such as a gradient, may compute them twice. The hash is two
rounds of multiplications and shifts with the constants of Wellons' lowbias32.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax, te, tirx

from ..graph.expr import attr_fields, ints, shape_of
from .registration import NAMESPACE, make_call, register_op

UNIFORM = NAMESPACE + "uniform"


def uniform(state: relax.Expr, shape: Sequence[int], number: int) -> relax.Call:
    """Numbers in [0, 1) in float32.

    Args:
        state: (2,) int32, a seed and a count of calls.
        number: Tells this tensor of random numbers from others of the same state.
    """
    return make_call("uniform", [state], shape=[int(d) for d in shape], number=int(number))


def _infer(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    return relax.TensorType(ints(attr_fields(call.attrs)["shape"]), "float32")


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    shape, number = shape_of(call), int(attr_fields(call.attrs)["number"])

    def drawn(state: te.Tensor) -> te.Tensor:
        def value(*at: tirx.Var) -> tirx.Expr:
            key = _mixed(state[0].astype("uint32"))
            key = _mixed(key ^ state[1].astype("uint32"))
            key = _mixed(key ^ _word(number))
            place = tirx.const(0, "uint32")
            for size, index in zip(shape, at, strict=True):
                place = place * _word(size) + index.astype("uint32")
            bits = _mixed(key ^ _mixed(place)) >> _word(8)
            return bits.astype("float32") * tirx.const(2.0**-24, "float32")

        return te.compute(shape, value, name="uniform")

    return builder.call_te(drawn, *call.args, primfunc_name_hint="uniform")


def _mixed(x: tirx.Expr) -> tirx.Expr:
    x = (x ^ (x >> _word(16))) * _word(0x7FEB352D)
    x = (x ^ (x >> _word(15))) * _word(0x846CA68B)
    return x ^ (x >> _word(16))


def _word(value: int) -> tirx.Expr:
    return tirx.const(value, "uint32")


register_op("uniform", "Random numbers in [0, 1).", _infer, _legalize, uniform)
