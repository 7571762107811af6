"""tanh as loops for the CPU.

TVM has LLVM compute ``(1 - e) / (1 + e)`` with ``e = exp(-2x)``, which loses the digits of results
near zero: of 1e-8 it makes zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax, te, tirx

from ..graph.expr import dtype_of
from ..graph.target import on_gpu
from ..tir.keep_nan import larger, smaller
from .default import default_legalize

#: Of float32 the result is 1 from here on.
_BOUND = 7.90531110763549805
#: x times a polynomial of x^2, over another: Eigen's approximation, to 3 units in the last place.
_ABOVE = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_BELOW = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)


def tanh(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize tanh of float32 as a rational function; CUDA, and other dtypes, keep TVM's."""
    if on_gpu() or dtype_of(call) != "float32":
        return default_legalize(bb, call)

    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: _tanh(x(*i)), name="tanh")

    return bb.call_te(compute, call.args[0], primfunc_name_hint="tanh")


def _tanh(x: tirx.Expr) -> tirx.Expr:
    bound = tirx.const(_BOUND, "float32")
    x = larger(smaller(x, bound), -bound)
    return x * _polynomial(_ABOVE, x * x) / _polynomial(_BELOW, x * x)


def _polynomial(coefficients: Sequence[float], x: tirx.Expr) -> tirx.Expr:
    total = tirx.const(coefficients[0], "float32")
    for coefficient in coefficients[1:]:
        total = total * x + tirx.const(coefficient, "float32")
    return total
