"""Global pooling, and pooling to a given output size."""

from __future__ import annotations

from collections.abc import Callable

from convoy.relay.ast import Call, Expr
from convoy.relay.layout import layout
from convoy.relay.lazy import relax, topi
from convoy.relay.ops.arguments import Size, make_call
from convoy.relay.ops.layouts import over_plain
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.ops.window import SPATIAL, rank_of
from convoy.relay.types import Dim, TensorType, Type

_GLOBAL = ["nn.global_max_pool2d", "nn.global_avg_pool2d"]
_ADAPTIVE = [f"nn.adaptive_{kind}_pool{rank}d" for kind in ("avg", "max") for rank in SPATIAL]


# ---- to a given size


def _adaptive(name: str) -> Callable[..., Call]:
    rank = rank_of(name)

    def build(
        data: Expr,
        output_size: Size | None = None,
        layout: str = "NC" + SPATIAL[rank],
        out_layout: str = "",
    ) -> Call:
        size = (output_size,) if isinstance(output_size, int) else output_size
        return make_call(name, data, output_size=size or None, layout=layout, out_layout=out_layout)

    build.__name__ = build.__qualname__ = name.removeprefix("nn.")
    build.__doc__ = f"Pool to `output_size` over {rank} axes; None keeps the size."
    return builder(name)(build)


_BUILDERS = {name: _adaptive(name) for name in _ADAPTIVE}


def _resized(call: Inputs, spatial: str, size: tuple[Dim, ...]) -> Type:
    """Infer the data's type with other sizes along the spatial axes."""
    layout = call.layout(call.attrs["layout"], "NC" + spatial)
    data = call.tensor(0, len(layout.parts))
    shape = list(data.shape)
    for axis, out in zip(spatial, size, strict=False):
        shape[layout.index(axis)] = out
    return TensorType(shape, data.dtype)


@type_rule(*_ADAPTIVE)
def infer_adaptive_pool(call: Inputs) -> Type:
    """Infer from `output_size`: none keeps the input's size, one value is for all axes."""
    call.count(1)
    rank = rank_of(call.name)
    size = call.attrs["output_size"]
    if not size:
        return call.tensor(0, 2 + rank)
    size = call.ints("output_size")
    if len(size) not in (1, rank) or any(s <= 0 for s in size):
        raise call.error(f"output_size={list(size)}", f"1 or {rank} values over zero")
    return _resized(call, SPATIAL[rank], size * rank if len(size) == 1 else size)


@converter(*_ADAPTIVE)
@over_plain
def convert_adaptive_pool(op: OpCall) -> RelaxExpr:
    """Emit pooling over windows from floor(i * in / out) to ceil((i + 1) * in / out)."""
    rank = rank_of(op.name)
    size = [int(s) for s in op.attrs["output_size"] or ()]
    if not size:
        return op.args[0]
    size = size * rank if len(size) == 1 else size
    name = op.attrs["layout"]
    if "avg" in op.name:
        adaptive = getattr(relax.op.nn, f"adaptive_avg_pool{rank}d")
        return op.averaged(lambda data: adaptive(data, tuple(size), layout=name))
    compute = {1: topi.nn.adaptive_pool1d, 2: topi.nn.adaptive_pool, 3: topi.nn.adaptive_pool3d}
    return op.te(compute[rank], op.args[0], size, pool_type="max", layout=name)


# ---- global


@builder("nn.global_max_pool2d")
def global_max_pool2d(data: Expr, layout: str = "NCHW", out_layout: str = "") -> Call:
    """Take the maximum over h and w, which become 1."""
    return make_call("nn.global_max_pool2d", data, layout=layout, out_layout=out_layout)


@builder("nn.global_avg_pool2d")
def global_avg_pool2d(data: Expr, layout: str = "NCHW", out_layout: str = "") -> Call:
    """Average over h and w, which become 1."""
    return make_call("nn.global_avg_pool2d", data, layout=layout, out_layout=out_layout)


def _global(kind: str, rank: int) -> None:
    """Register global pooling over axes for which Relay has no operator of its own."""
    adaptive = _BUILDERS[f"nn.adaptive_{kind}_pool{rank}d"]

    def build(data: Expr, layout: str = "NC" + SPATIAL[rank], out_layout: str = "") -> Call:
        return adaptive(data, (1,) * rank, layout, out_layout)

    build.__name__ = build.__qualname__ = f"global_{kind}_pool{rank}d"
    build.__doc__ = f"Pool over all of {rank} axes, which become 1."
    builder(f"nn.{build.__name__}")(build)


for _rank in (1, 3):
    _global("avg", _rank)
    _global("max", _rank)


@type_rule(*_GLOBAL)
def infer_global_pool(call: Inputs) -> Type:
    call.count(1)
    return _resized(call, "HW", (1, 1))


@converter(*_GLOBAL)
@over_plain
def convert_global_pool(op: OpCall) -> RelaxExpr:
    found = layout(op.attrs["layout"], "NCHW")
    if "avg" in op.name and found.name in ("NCHW", "NHWC"):
        return op.averaged(
            lambda data: relax.op.nn.adaptive_avg_pool2d(data, (1, 1), layout=found.name)
        )
    axes = [found.index("H"), found.index("W")]
    if "avg" in op.name:
        return op.averaged(lambda data: relax.op.mean(data, axes, keepdims=True))
    return relax.op.max(op.args[0], axes, keepdims=True)
