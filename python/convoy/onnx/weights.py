"""Tensors of an ONNX model as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidModel

if TYPE_CHECKING:
    import onnx


class Weights:
    """Reads tensors; external data from files below the model's folder, mapped rather than loaded.

    Args:
        model: The model's file. Where it is a link, as in the cache of Hugging Face's hub, data may
            lie below either folder.
    """

    def __init__(self, model: Path | None) -> None:
        self._folders = [model.absolute().parent, model.resolve().parent] if model else []

    def array(self, tensor: onnx.TensorProto) -> np.ndarray:
        """The values of a tensor.

        Raises:
            InvalidModel: Values that are missing, or in a file outside the model's folder.
        """
        from onnx import TensorProto, numpy_helper

        try:
            if tensor.data_location == TensorProto.EXTERNAL:
                return self._external(tensor)
            return numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError, OSError) as err:
            raise InvalidModel(
                f"tensor {tensor.name!r}, which cannot be read ({err})", "a tensor with its values"
            ) from None

    def sparse(self, tensor: onnx.SparseTensorProto) -> np.ndarray:
        """The values of a sparse tensor, zeros filled in."""
        values, indices = self.array(tensor.values), self.array(tensor.indices)
        dense = np.zeros(tuple(tensor.dims), values.dtype)
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
        return dense

    def _external(self, tensor: onnx.TensorProto) -> np.ndarray:
        from onnx import helper

        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if not self._folders:
            raise ValueError(f"its data is in {location!r}: give the path of the model")
        places = [folder / location for folder in self._folders]
        path = next((place for place in places if place.exists()), places[0]).resolve()
        inside = any(path.is_relative_to(folder.resolve()) for folder in self._folders)
        if not location or not inside:
            raise ValueError(f"{location!r} is not below the model's folder")
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        shape, offset = tuple(tensor.dims), int(entries.get("offset", 0))
        if offset < 0 or offset + math.prod(shape) * dtype.itemsize > path.stat().st_size:
            raise ValueError(f"{location!r} is too short")
        if not math.prod(shape):
            return np.zeros(shape, dtype)
        return np.memmap(path, dtype, "r", offset, shape).view(np.ndarray)


def attributes(
    protos: Iterable[onnx.AttributeProto], given: Mapping[str, Any], weights: Weights
) -> dict[str, Any]:
    """Attributes by name: numbers, text, tuples of them, arrays, graphs.

    Args:
        given: Values for those that name an attribute of the function that they are in.
    """
    from onnx import AttributeProto, helper

    found: dict[str, Any] = {}
    for proto in protos:
        if proto.ref_attr_name:
            if proto.ref_attr_name in given:
                found[proto.name] = given[proto.ref_attr_name]
            continue
        value = helper.get_attribute_value(proto)
        if proto.type == AttributeProto.STRING:
            value = value.decode("utf-8", "replace")
        elif proto.type == AttributeProto.STRINGS:
            value = tuple(text.decode("utf-8", "replace") for text in value)
        elif proto.type == AttributeProto.TENSOR:
            value = weights.array(value)
        elif proto.type == AttributeProto.SPARSE_TENSOR:
            value = weights.sparse(value)
        elif proto.type in (AttributeProto.INTS, AttributeProto.FLOATS):
            value = tuple(value)
        found[proto.name] = value
    return found
