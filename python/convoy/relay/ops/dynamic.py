"""`dyn.*`: operators that take shapes as arguments.

With constant shapes they are the static operators, into which they are expanded. Shapes that are
computed leave sizes unknown in the type; `relay.tracing` computes them before the call is expanded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.errors import RelayTypeError
from convoy.relay.ast import Call, Constant, Expr, Op
from convoy.relay.layout import layout
from convoy.relay.ops.expansion_call import attrs_of, constant, name_of, plain
from convoy.relay.ops.registry import OPERATORS, expansion, shape_arguments, type_rule
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, TupleType, Type


def _ints(call: Call, value: Expr, what: str = "a shape") -> tuple[int, ...]:
    return tuple(int(v) for v in constant(call, value, what).reshape(-1))


def _one(call: Call, value: Expr, what: str) -> Any:
    """Return the single value of an argument.

    Raises:
        RelayTypeError: Several values.
    """
    numbers = constant(call, value, what).reshape(-1)
    if len(numbers) != 1:
        raise RelayTypeError(f"{name_of(call)} with {len(numbers)} values for {what}", "one")
    return numbers[0].item()


def static_call(call: Call, args: Sequence[Expr]) -> Expr:
    """Make the call of the static operator.

    Raises:
        UnsupportedOp: A shape that is computed.
        RelayTypeError: A wrong number of values.
    """
    name = name_of(call)
    static = name.removeprefix("dyn.")
    attrs: dict[str, Any] = dict(attrs_of(call))
    taken = 1
    if static in ("zeros", "ones"):
        attrs["shape"], taken = _ints(call, args[0]), 0
    elif static in ("broadcast_to", "full"):
        attrs["shape"] = _ints(call, args[1])
    elif static == "reshape":
        attrs["newshape"] = _ints(call, args[1])
    elif static == "tile":
        attrs["reps"] = _ints(call, args[1], "repetitions")
    elif static == "squeeze":
        attrs["axis"] = _ints(call, args[1], "axes")
    elif static == "expand_dims":
        attrs["axis"] = int(_one(call, args[1], "an axis"))
    elif static == "topk":
        attrs["k"] = int(_one(call, args[1], "k"))
    elif static == "one_hot":
        attrs["depth"], taken = int(_one(call, args[3], "a depth")), 3
    elif static == "strided_slice":
        for position, field in enumerate(("begin", "end", "strides"), 1):
            attrs[field] = _ints(call, args[position], f"{field}")
        attrs["axes"] = None
    elif static == "sparse_to_dense":
        return plain(static, *args[:3], output_shape=_ints(call, args[3]))
    elif static == "nn.pad":
        flat = _ints(call, args[1], "a width")
        if len(flat) % 2:
            raise RelayTypeError(f"{name_of(call)} with {len(flat)} widths", "pairs")
        attrs["pad_width"] = tuple(zip(flat[::2], flat[1::2], strict=True))
        return plain(static, args[0], args[2], **attrs)
    elif static == "image.resize2d":
        attrs["size"] = _ints(call, args[1], "a size")
        attrs["roi"] = tuple(float(v) for v in constant(call, args[2], "a region").reshape(-1))
    else:
        for position, field in enumerate(("scale_d", "scale_h", "scale_w")[-len(args) + 1 :], 1):
            attrs[field] = float(_one(call, args[position], "a scale"))
    return plain(static, *args[:taken], **attrs)


# Of each operator the number of arguments and the positions of those that determine the shape.
ARGUMENTS: dict[str, tuple[int, tuple[int, ...]]] = {
    "dyn.broadcast_to": (2, (1,)),
    "dyn.expand_dims": (2, (1,)),
    "dyn.full": (2, (1,)),
    "dyn.image.resize2d": (3, (1, 2)),
    "dyn.nn.pad": (3, (1,)),
    "dyn.nn.upsampling": (3, (1, 2)),
    "dyn.nn.upsampling3d": (4, (1, 2, 3)),
    "dyn.one_hot": (4, (3,)),
    "dyn.ones": (1, (0,)),
    "dyn.reshape": (2, (1,)),
    "dyn.sparse_to_dense": (4, (3,)),
    "dyn.squeeze": (2, (1,)),
    "dyn.strided_slice": (4, (1, 2, 3)),
    "dyn.tile": (2, (1,)),
    "dyn.topk": (2, (1,)),
    "dyn.zeros": (1, (0,)),
}
expansion(*ARGUMENTS)(static_call)
for _name, (_, _positions) in ARGUMENTS.items():
    shape_arguments(_name, *_positions)


@type_rule(*ARGUMENTS)
def infer_dynamic(call: Inputs) -> Type:
    """Apply the rule of the static operator; a computed shape leaves sizes unknown."""
    count, positions = ARGUMENTS[call.name]
    call.count(count)
    if not all(isinstance(call.call.args[p], Constant) for p in positions):
        for index in range(count):
            call.tensor(index)
        return _of_unknown_sizes(call)
    static = static_call(call.call, call.call.args)
    assert isinstance(static, Call) and isinstance(static.op, Op)
    kept = [call.types[list(call.call.args).index(arg)] for arg in static.args]
    rule = OPERATORS[static.op.name].type_rule
    assert rule is not None
    return rule(Inputs(static, kept))


def _of_unknown_sizes(call: Inputs) -> Type:
    """Return the type of a call whose shape is computed: what the other arguments determine."""
    name, data = call.name.removeprefix("dyn."), call.tensor(0)
    attrs = call.call.attrs
    dtype: str = (attrs["dtype"] if attrs is not None and "dtype" in attrs else "") or data.dtype
    if name in ("zeros", "ones"):
        return TensorType(_unknown(_length(call, 0)), attrs["dtype"] or "float32")  # type: ignore[index]
    if name in ("broadcast_to", "reshape"):
        return TensorType(_unknown(_length(call, 1)), data.dtype)
    if name == "full":
        return TensorType(_unknown(_length(call, 1)), dtype)
    if name == "sparse_to_dense":
        return TensorType(_unknown(_length(call, 3)), call.tensor(1).dtype)
    if name == "tile":
        return TensorType(_unknown(max(len(data.shape), _length(call, 1))), data.dtype)
    if name == "squeeze":
        left = len(data.shape) - _length(call, 1)
        if left < 0:
            raise call.error(f"{_length(call, 1)} axes of {data}")
        return TensorType(_unknown(left), data.dtype)
    if name == "expand_dims":
        more = attrs.get_int("num_newaxis")  # type: ignore[union-attr]
        return TensorType(_unknown(len(data.shape) + more), data.dtype)
    if name == "strided_slice":
        cut = min(_length(call, 1), len(data.shape))
        return TensorType((*_unknown(cut), *data.shape[cut:]), data.dtype)
    if name == "nn.pad":
        return TensorType(_unknown(len(data.shape)), data.dtype)
    assert attrs is not None
    if name == "one_hot":
        axis = call.axis(attrs.get_int("axis"), len(data.shape) + 1)
        return TensorType((*data.shape[:axis], DynamicDim(), *data.shape[axis:]), dtype)
    if name == "topk":
        return _of_unknown_k(call, data)
    axes = "NCDHW" if name == "nn.upsampling3d" else "NCHW"
    found, shape = layout(attrs["layout"], axes), list(data.shape)
    if len(shape) != len(found.parts):
        raise call.error(f"{data}", f"a tensor of {len(found.parts)} dimensions")
    for axis_name in axes[2:]:
        shape[found.index(axis_name)] = DynamicDim()
    return TensorType(shape, attrs.get("out_dtype") or data.dtype)


def _of_unknown_k(call: Inputs, data: TensorType) -> Type:
    shape: list[Dim] = list(data.shape)
    shape[call.axis(call.attrs.get_int("axis"), len(shape))] = DynamicDim()
    values, indices = TensorType(shape, data.dtype), TensorType(shape, call.attrs["dtype"])
    both = {"both": TupleType([values, indices]), "values": values, "indices": indices}
    if call.attrs["ret_type"] not in both:
        raise call.error(f"ret_type='{call.attrs['ret_type']}'", "'both', 'values' or 'indices'")
    return both[call.attrs["ret_type"]]


def _unknown(rank: int) -> tuple[Dim, ...]:
    return (DynamicDim(),) * rank


def _length(call: Inputs, index: int) -> int:
    """Return the number of values that an argument holds: the rank of the result."""
    found = call.tensor(index)
    if not found.is_static:
        raise call.error(f"argument {index} is {found}", "a vector of a known number of sizes")
    (size,) = found.concrete_shape if len(found.shape) == 1 else (1,)
    return size
