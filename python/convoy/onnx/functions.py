"""Operators that ONNX defines by others."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from .call import Call

if TYPE_CHECKING:
    import onnx


def has_function(domain: str, op: str, version: int) -> bool:
    """Whether ONNX defines an operator by others."""
    import onnx

    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def schema_function(call: Call, domain: str) -> tuple[onnx.FunctionProto, Call] | None:
    """The body that the installed onnx gives for an operator, and the call with all attributes;
    None where it has none."""
    import onnx

    try:
        schema = onnx.defs.get_schema(call.op, call.version, domain)
    except onnx.defs.SchemaError:
        return None
    helper = onnx.helper
    defaults = {
        name: helper.get_attribute_value(attribute.default_value)
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }
    decoded = {k: v.decode() if isinstance(v, bytes) else v for k, v in defaults.items()}
    call = dataclasses.replace(call, attrs={**decoded, **call.attrs})
    if schema.has_function:
        return schema.function_body, call
    if not schema.has_context_dependent_function:
        return None
    node = onnx.helper.make_node(
        call.op,
        [f"i{i}" if value is not None else "" for i, value in enumerate(call.inputs)],
        [f"o{i}" for i in range(max(1, call.outputs))],
        domain=domain,
        **{
            name: onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
            for name, value in call.attrs.items()
        },
    )
    types = []
    for index, value in enumerate(call.inputs):
        if value is None:
            types.append(onnx.TypeProto())
            continue
        element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(call.dtype(index)))
        types.append(onnx.helper.make_tensor_type_proto(element, call.shape(index)))
    body = schema.get_context_dependent_function(
        node.SerializeToString(), [t.SerializeToString() for t in types]
    )
    return (onnx.FunctionProto.FromString(body), call) if body else None
