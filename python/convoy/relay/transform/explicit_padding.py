"""FoldExplicitPadding: nn.pad in front of a convolution or a pool becomes its padding."""

from __future__ import annotations

import numpy as np

from convoy.relay.ast import Call, Constant, Expr, op_call
from convoy.relay.builder import numpy_dtype
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.rewriting import Rule, call_pass, op_name, tensor_type

_LAYOUT = {
    **{f"nn.{kind}{n}d": "data_layout" for kind in ("conv", "contrib_conv") for n in (1, 2, 3)},
    **{f"nn.{kind}_pool{n}d": "layout" for kind in ("max", "avg") for n in (1, 2, 3)},
}


@register_pass
def FoldExplicitPadding() -> Pass:
    """Fold nn.pad into the padding of the convolution or the pool behind it, where they agree."""
    return call_pass("FoldExplicitPadding", 0, lambda: _RULE)


def _rule(pre: Call, call: Call) -> Expr | None:
    name = op_name(pre)
    if name == "qnn.conv2d":
        return _quantized(pre, call)
    if name not in _LAYOUT or op_name(call.args[0]) != "nn.pad":
        return None
    pad, attrs = call.args[0], pre.attrs
    assert isinstance(pad, Call) and attrs is not None
    neutral = _lowest(tensor_type(pre).dtype) if name.startswith("nn.max") else 0
    padding = _padding(pad, attrs[_LAYOUT[name]], attrs["padding"], neutral)
    if padding is None:
        return None
    changed = {**dict(attrs), "padding": padding}
    if name.startswith("nn.avg"):
        own = any(int(p) for p in attrs["padding"])
        if own and not attrs["count_include_pad"]:
            return None
        changed["count_include_pad"] = True
    return op_call(name, [pad.args[0], *call.args[1:]], **changed)


def _quantized(pre: Call, call: Call) -> Expr | None:
    """Fold where the padding value is the input's zero point."""
    pad, attrs, zero = call.args[0], pre.attrs, call.args[2]
    if op_name(pad) != "nn.pad" or not isinstance(zero, Constant) or zero.value.size != 1:
        return None
    assert isinstance(pad, Call) and attrs is not None
    padding = _padding(pad, attrs["data_layout"], attrs["padding"], zero.value.item())
    if padding is None:
        return None
    changed = {**dict(attrs), "padding": padding}
    return op_call("qnn.conv2d", [pad.args[0], *call.args[1:]], **changed)


def _padding(pad: Call, layout: str, own: tuple[int, ...], neutral: float) -> list[int] | None:
    """Return the sum of both paddings, or None where they do not agree."""
    assert pad.attrs is not None
    value = pad.args[1] if len(pad.args) > 1 else None
    if pad.attrs["pad_mode"] != "constant" or not isinstance(value, Constant):
        return None
    if value.value.size != 1 or value.value.item() != neutral:
        return None
    widths = pad.attrs["pad_width"]
    spatial = [i for i, axis in enumerate(layout) if axis in "DHW"]
    if len(layout) != len(widths):
        return None
    if any(int(w) for i, pair in enumerate(widths) if i not in spatial for w in pair):
        return None
    if any(int(w) < 0 for pair in widths for w in pair):
        return None
    added = [int(widths[i][side]) for side in (0, 1) for i in spatial]
    return [a + int(p) for a, p in zip(added, own, strict=True)]


def _lowest(dtype: str) -> float:
    kind = numpy_dtype(dtype)
    if kind.kind in "iu":
        return int(np.iinfo(kind).min)
    return float(np.finfo(kind).min) if kind.kind == "f" else float("-inf")


_RULE: Rule = _rule
