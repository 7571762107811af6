"""ONNX models as Relax modules."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax

from ...errors import InvalidModel, UnsupportedOp
from ...ir.names import OUTPUT_NAMES
from ...onnx.importer import Importer, element_type
from ...onnx.shapes import check_options, constant_inputs, input_shapes, other_sizes
from ...onnx.weights import Weights
from .builder import RelaxBuilder

if TYPE_CHECKING:
    import onnx

__all__ = ["RelaxBuilder", "from_onnx"]


def from_onnx(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    outputs: Sequence[str] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> tvm.IRModule:
    """Convert an ONNX model to a Relax module for :func:`convoy.build` and :func:`convoy.place`.

    Inputs and outputs keep their names. All sizes are fixed: what a model leaves open is given.

    Args:
        model: A file, with its external data beside it, its content, or a model that is loaded.
        shapes: Shapes of inputs by name, for those with open axes.
        batch: The size of a first axis that is open.
        outputs: Names of any tensors of the model to end it at, instead of its own outputs.
        constants: Values of inputs by name, which are no inputs of the module then: sampling
            rates, sizes and flags that shapes or branches depend on.

    Raises:
        InvalidOption: A shape or constant that contradicts the model, or for an input that it does
            not have.
        DynamicShape: An open axis without a size; says what to give.
        UnsupportedOp: An operator, or a use of one, that there is no converter for; by name.
        UnsupportedDtype: A tensor of text, complex numbers, float8 or fewer than eight bits.
        InvalidModel: A file that cannot be read, or a model that contradicts itself or the sizes
            that were given.
    """
    from ...onnx.file import load

    path = Path(model) if isinstance(model, (str, os.PathLike)) else None
    model = load(model)
    check_options(shapes, constants, outputs)
    names = list(outputs or (value.name for value in model.graph.output))
    builder = RelaxBuilder()
    importer = Importer(model, Weights(path), builder)
    inputs = importer.inputs()
    dtypes = {value.name: element_type(value) for value in inputs}
    known = constant_inputs(inputs, constants or {}, dtypes)
    given = {**(shapes or {}), **{name: array.shape for name, array in known.items()}}
    sizes = input_shapes(inputs, given, batch)
    params = {
        name: relax.Var(name, relax.TensorType(sizes[name], dtype))
        for name, dtype in dtypes.items()
        if name not in known
    }
    block = builder.block
    with _closed_on_errors(block), block.function("main", list(params.values())):
        with block.dataflow():
            try:
                found = importer.outputs({**params, **known}, names)
            except InvalidModel as err:
                remedy = other_sizes(inputs, sizes) or err.remedy
                raise err.reworded(remedy=remedy) from err
            if lists := [name for name, v in zip(names, found, strict=True) if type(v) is list]:
                raise UnsupportedOp(f"an output {lists[0]!r} that is a sequence", "tensors")
            result = found[0] if len(found) == 1 else relax.Tuple(found)
            result = block.emit_output(result)
        block.emit_func_output(result)
    return block.get().with_attr(OUTPUT_NAMES, names)


@contextmanager
def _closed_on_errors(block: relax.BlockBuilder) -> Iterator[None]:
    """End the block that an error leaves open: its builder warns otherwise."""
    try:
        yield
    except Exception:
        block._end_block()
        raise
