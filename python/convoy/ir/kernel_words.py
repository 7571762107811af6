"""Describe kernels in words, for tables."""

from __future__ import annotations

import re

_CUDNN = re.compile(r"eng(\d+)((?:_k\d+=-?\d+)*)(_zerobias)?")
#: Parts of the names of compiled kernels; the first match is used.
_PARTS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"c(\d+x\d+)", r"cluster \1"),
        (r"w(\d+x\d+)", r"warps \1"),
        (r"s(\d+)", r"\1 stages"),
        (r"split(\d+)", r"\1"),
        (r"swizzle(\d+)", r"swizzle \1"),
        (r"splitk", "split-K"),
        (r"streamk", "stream-K"),
        (r"conv|fprop|f16", ""),
    )
)
_SCHEDULES = ("pingpong", "cooperative")
#: Backend of TVM's own kernels.
NATIVE = "tvm"


def readable(symbol: str) -> str:
    """Return a kernel's symbol without the word that most have and the numbers that make it
    unique."""
    words = [word.rstrip("0123456789") for word in symbol.split("_") if word != "fused"]
    return " ".join(filter(None, words)) or symbol


def kernel_words(backend: str, kernel: str) -> str:
    """Describe a kernel in words: ``sm90 128x64x64 split-K 12 pingpong``, ``engine 41, 7
    knobs``."""
    if backend == "cudnn" and (found := _CUDNN.fullmatch(kernel)):
        knobs = found[2].count("=")
        words = f"engine {found[1]}"
        if knobs:
            words += f", {knobs} knob{'s' if knobs > 1 else ''}"
        return words + (", zero bias" if found[3] else "")
    parts = re.split(r"[_.]", kernel)
    parts.sort(key=lambda part: part in _SCHEDULES)  # said last: the rest tells more
    return " ".join(filter(None, map(_part, parts)))


def _part(part: str) -> str:
    for pattern, words in _PARTS:
        if pattern.fullmatch(part):
            return pattern.sub(words, part)
    return part
