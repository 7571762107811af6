"""Names of workloads: canonical ones for keys, short ones for tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .workload import Workload


def key(workload: Workload) -> str:
    """Return all that tells a workload from others in one line, without what has its default."""
    w = workload
    pad = w.padding[:2] if w.symmetric_padding else w.padding
    parts = [
        w.op,
        f"n{w.n}h{w.h}w{w.w}c{w.c}k{w.k}r{w.r}s{w.s}",
        "st" + "x".join(map(str, w.stride)),
        "pd" + "x".join(map(str, pad)),
    ]
    if w.dilation != (1, 1):
        parts.append("dl" + "x".join(map(str, w.dilation)))
    if w.is_3d:
        parts.append(w.depth.name)
    if w.groups != 1:
        parts.append(f"g{w.groups}")
    parts.append(f"{w.dtype}-{w.out_dtype}-{w.acc_dtype}")
    if w.math != "default":
        parts.append(w.math)
    if w.epilogue.name:
        parts.append(w.epilogue.name)
    of_op = (w.attention, w.stem, w.expansion, w.bottleneck, w.squeeze_excite)
    parts += [fields.name for fields in of_op if fields is not None]
    return ".".join(parts)


def label(workload: Workload) -> str:
    """Return filter, channels, groups and stride, such as ``3x3 64→128 /2``; for attention queries,
    keys, heads and their size."""
    w = workload
    if w.op == "attention":
        return f"attention {w.h}x{w.w} {w.groups}x{w.c // w.groups}"
    if w.squeeze_excite is not None:
        return f"{w.op} {w.c}→{w.squeeze_excite.channels}→{w.c}"
    inner = w.stem or w.expansion
    c = inner.channels if inner is not None else w.c
    grouped = w.groups > 1 and w.expansion is None
    name = f"{c}→{w.k}" + f" g{w.groups}" * grouped
    if w.bottleneck is not None:
        widths = filter(None, (w.bottleneck.expand, w.bottleneck.reduce))
        name += "".join(f"→{width}" for width in widths)
    if w.op != "matmul":
        stride = f" /{w.stride[0]}" if w.stride != (1, 1) else ""
        planes = f"{w.depth.t}x" if w.is_3d else ""
        name = f"{planes}{w.r}x{w.s} {name}{stride}"
    return name if w.op == "fprop" else f"{w.op} {name}"
