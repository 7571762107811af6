"""Maximum and minimum that propagate NaN, as in NumPy, PyTorch and ONNX.

TIR's own return the second operand on CPUs if the first is NaN, and on CUDA the operand that is not
NaN. Here they are one instruction on CUDA, ``max.NaN`` (sm_80 and later); expressions nest, so
operands must appear once in the source. On CPUs they are a comparison and a selection, which LLVM
vectorizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tvm_ffi
from tvm import te, tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.tirx import Expr

from ..graph.target import on_gpu

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def larger(a: Expr, b: Expr) -> Expr:
    """Return the maximum of two scalars of one dtype; NaN if either is."""
    return _chosen("max", a, b)


def smaller(a: Expr, b: Expr) -> Expr:
    """Return the minimum of two scalars of one dtype; NaN if either is."""
    return _chosen("min", a, b)


def _chosen(name: str, a: Expr, b: Expr) -> Expr:
    dtype = str(a.ty.dtype)
    if dtype not in _FLOATS:
        return te.max(a, b) if name == "max" else te.min(a, b)
    return _cuda(name, a, b, dtype) if on_gpu() else selected(name, a, b)


def selected(name: str, a: Expr, b: Expr) -> Expr:
    """Return the "max" or "min" of floats by a comparison, as on CPUs."""
    replaced = a < b if name == "max" else a > b
    if not isinstance(b, tirx.FloatImm):
        # TVM asks no bfloat16 whether it is NaN.
        wide = b.astype("float32") if str(b.ty.dtype) == "bfloat16" else b
        replaced = tirx.any(replaced, tirx.isnan(wide))
    return tirx.Select(replaced, b, a)


def _cuda(name: str, a: Expr, b: Expr, dtype: str) -> Expr:
    if dtype == "bfloat16":  # TVM computes in float32
        return _cuda(name, a.astype("float32"), b.astype("float32"), "float32").astype(dtype)
    symbol = f"convoy_{name}_nan_{dtype}"
    return cuda_func_call(symbol, a, b, source_code=_source(symbol, name, dtype), return_type=dtype)


def _source(symbol: str, name: str, dtype: str) -> str:
    """Return a device function in CUDA C++."""
    c_type = {"float16": "half", "float32": "float", "float64": "double"}[dtype]
    head = f"__forceinline__ __device__ {c_type} {symbol}({c_type} a, {c_type} b)"
    if dtype == "float16":
        return f"{head} {{ return __h{name}_nan(a, b); }}\n"
    compare = "<" if name == "max" else ">"
    plain = f"  return a {compare} b || b != b ? b : a;\n"
    if dtype == "float32":
        plain = (
            "#if __CUDA_ARCH__ >= 800\n"
            f'  float r;\n  asm("{name}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));\n'
            f"  return r;\n#else\n{plain}#endif\n"
        )
    return f"{head} {{\n{plain}}}\n"


def _reducer(
    choose: Callable[[Expr, Expr], Expr], identity: Callable[[str], Expr]
) -> te.CommReducer:
    """Return a reduction by ``choose``, registered with TVM so that schedules may split it between
    threads."""
    name = f"convoy.{choose.__name__}"
    # By way of global functions, which last as long as TVM's registry, longer than the interpreter.
    register = tvm_ffi.register_global_func
    register(f"{name}.combine", lambda a, b: [choose(a[0], b[0])], override=True)
    register(f"{name}.identity", lambda v: [identity(str(v[0].ty.dtype))], override=True)
    combine, start = (tvm_ffi.get_global_func(f"{name}.{f}") for f in ("combine", "identity"))
    tvm_ffi.get_global_func("s_tir.schedule.RegisterReducer")(1, combine, start)
    return te.comm_reducer(choose, identity, name=choose.__name__)


def lowest(dtype: str) -> Expr:
    """Return the identity of maximum: minus infinity, or the smallest integer."""
    return tirx.const(-math.inf, dtype) if dtype in _FLOATS else te.min_value(dtype)


def highest(dtype: str) -> Expr:
    """Return the identity of minimum: infinity, or the largest integer."""
    return tirx.const(math.inf, dtype) if dtype in _FLOATS else te.max_value(dtype)


largest = _reducer(larger, lowest)  #: As te.max of a reduction
smallest = _reducer(smaller, highest)  #: As te.min of a reduction
