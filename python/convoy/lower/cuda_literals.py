"""Infinities and NaN of bfloat16 in generated CUDA: TVM writes ``inff`` and ``nanf``, which C++
does not have."""

from __future__ import annotations

import re

import tvm
import tvm_ffi

#: TVM calls it with the source of each CUDA module and compiles what it returns.
_HOOK = "tvm_callback_cuda_postproc"
_LITERALS = {"inff": "__int_as_float(0x7f800000)", "nanf": "__int_as_float(0x7fffffff)"}
_PATTERN = re.compile(r"\b(inff|nanf)\b(?!\s*\()")


def with_valid_literals(source: str, target: tvm.target.Target | None = None) -> str:
    """The source with such constants in C++."""
    return _PATTERN.sub(lambda match: _LITERALS[match[1]], source)


def register() -> None:
    """Register the postprocessor of TVM's sources, unless the user has registered another one."""
    if tvm_ffi.get_global_func(_HOOK, allow_missing=True) is None:
        tvm_ffi.register_global_func(_HOOK, with_valid_literals)
