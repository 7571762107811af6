"""Matrix products."""

from __future__ import annotations

from convoy.relay.infer.rules import Inputs, broadcast_dim, rule, same_dim
from convoy.relay.types import Dim, TensorType, Type


@rule("nn.dense")
def dense(call: Inputs) -> Type:
    """data (..., k) times weight (units, k) transposed."""
    return _matmul(call, False, True)


@rule("nn.matmul")
def matmul(call: Inputs) -> Type:
    return _matmul(call, call.attrs["transpose_a"], call.attrs["transpose_b"])


def _matmul(call: Inputs, transpose_a: bool, transpose_b: bool) -> Type:
    call.count(2)
    units = call.attrs["units"]
    a = call.tensor(0)
    if not a.shape:
        raise call.error("a scalar as argument 0", "a tensor")
    if transpose_a and len(a.shape) != 2:
        raise call.error(f"transpose_a with {a}", "a matrix")
    inner = a.shape[0] if transpose_a else a.shape[-1]
    rows = a.shape[1:] if transpose_a else a.shape[:-1]
    if units is not None:
        b = call.known(1)
        shape: tuple[Dim, ...] = (units, inner) if transpose_b else (inner, units)
        call.expect(1, TensorType(shape, b.dtype if b else a.dtype))
        columns: Dim = units
    else:
        b = call.tensor(1, 2)
        if not same_dim(b.shape[1 if transpose_b else 0], inner):
            raise call.error(f"{a} times {b}", f"{inner} as the reduced size of both")
        columns = b.shape[0 if transpose_b else 1]
    return TensorType((*rows, columns), call.out_dtype(a.dtype))


@rule("nn.batch_matmul")
def batch_matmul(call: Inputs) -> Type:
    """(b, m, k) times (b, k, n), each optionally transposed; a batch of 1 broadcasts."""
    call.count(2)
    x, y = call.tensor(0, 3), call.tensor(1, 3)
    m, k = (2, 1) if call.attrs["transpose_a"] else (1, 2)
    n, k2 = (1, 2) if call.attrs["transpose_b"] else (2, 1)
    batch = broadcast_dim(x.shape[0], y.shape[0])
    if batch is None or not same_dim(x.shape[k], y.shape[k2]):
        raise call.error(f"{x} times {y}", "equal batches and equal reduced sizes")
    return TensorType((batch, x.shape[m], y.shape[n]), call.out_dtype(x.dtype))
