"""Mend the CUDA sources that TVM generates, before they are compiled.

Infinities and NaN of bfloat16 are written ``inff`` and ``nanf``, which C++ does not have. Every
source includes ``cuda/std/type_traits`` for NVRTC, which takes longer to read than all other
headers together and than most kernels to compile; few sources use it.
"""

from __future__ import annotations

import re

import tvm_ffi

#: TVM calls it with the source of each CUDA module and compiles what it returns.
_HOOK = "tvm_callback_cuda_postproc"
_LITERALS = {"inff": "__int_as_float(0x7f800000)", "nanf": "__int_as_float(0x7fffffff)"}
_LITERAL = re.compile(r"\b(inff|nanf)\b(?!\s*\()")
_TRAITS = re.compile(r"#include <cuda/std/type_traits>\s*namespace std \{[^{}]*\}\n")
_TRAIT = re.compile(r"\bstd::(is_|enable_if|conditional)")


def mended(source: str, target: object = None) -> str:
    """The source with such constants in C++, and without type traits that it does not use."""
    short = _TRAITS.sub("", source)
    if not _TRAIT.search(short):
        source = short
    return _LITERAL.sub(lambda match: _LITERALS[match[1]], source)


def register() -> None:
    """Have TVM mend its sources, unless a user of TVM has put a function in that place."""
    if tvm_ffi.get_global_func(_HOOK, allow_missing=True) is None:
        tvm_ffi.register_global_func(_HOOK, mended)
