"""Sizes and constant values of a model's inputs: what is open is given."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DynamicShape, InvalidOption
from ..ir.dtypes import numpy_dtype
from ..ir.sizes import check_batch, check_shape

if TYPE_CHECKING:
    import onnx

Size = int | str

#: What exporters write for an open size without a name, beside signs alone such as ``?``.
_NAMELESS = ("none", "unknown", "dynamic")


def check_options(shapes: Any, constants: Any, outputs: Any) -> None:
    """Check the kinds of an import's options.

    Raises:
        InvalidOption: What is not by name, or a name in the place of names.
    """
    for option, value in (("shapes", shapes), ("constants", constants)):
        if not isinstance(value, Mapping | None):
            example = "{'image': (1, 3, 224, 224)}" if option == "shapes" else "{'rate': 16000}"
            raise InvalidOption(f"{option}={value!r}", f"a dictionary by name, such as {example}")
    if isinstance(outputs, str):
        raise InvalidOption(f"outputs={outputs!r}", f"a list of names, such as [{outputs!r}]")


def input_shapes(
    inputs: Sequence[onnx.ValueInfoProto],
    shapes: Mapping[str, Sequence[int]],
    batch: int | None = None,
) -> dict[str, tuple[int, ...]]:
    """Static shapes of inputs by name.

    A size that is open under a name is the same wherever that name is, so it need be given once.

    Args:
        shapes: Given shapes by name.
        batch: The size of a first axis that is open.

    Raises:
        InvalidOption: A shape for an unknown input, or one that contradicts the model's; a batch
            below 1.
        DynamicShape: Sizes that remain open; says what to give for all of them.
    """
    declared = {value.name: _declared(value) for value in inputs}
    if unknown := shapes.keys() - declared.keys():
        names = ", ".join(map(repr, declared)) or "none: it has no inputs"
        raise InvalidOption(f"a shape for input {min(unknown)!r}", f"one of {names}")
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        _match(name, declared[name], shape, sizes)
    if batch is not None:
        check_batch(batch)
        for name, axes in declared.items():
            if axes and name not in shapes:
                declared[name] = (_batch(name, axes[0], batch, sizes), *axes[1:])
            elif axes and isinstance(axes[0], str) and shapes[name][0] != batch:
                raise InvalidOption(
                    f"--batch {batch} and shape {_text(shapes[name])} for input {name!r}",
                    "one of both",
                )
    found: dict[str, tuple[int, ...]] = {}
    open_inputs: dict[str, tuple[Size, ...] | None] = {}
    for name, axes in declared.items():
        if name in shapes:
            axes = tuple(shapes[name])
        elif axes is not None:
            axes = tuple(sizes.get(s, s) if isinstance(s, str) else s for s in axes)
        if axes is None or any(isinstance(size, str) for size in axes):
            open_inputs[name] = axes
        else:
            found[name] = tuple(int(size) for size in axes)
    if open_inputs:
        raise _open_axes(open_inputs)
    return found


def other_sizes(inputs: Sequence[onnx.ValueInfoProto], given: Mapping[str, Sequence[int]]) -> str:
    """What to do about a model that contradicts the sizes that were given for its open axes; empty
    where it has none."""
    wanted = {value.name: _declared(value) for value in inputs}
    opened = {
        name: axes
        for name, axes in wanted.items()
        if axes is None or any(isinstance(size, str) for size in axes)
    }
    if not opened:
        return ""
    texts = {name: "?" if axes is None else _text(axes) for name, axes in opened.items()}
    had = ", ".join(f"{name!r} {text} as {_text(given[name])}" for name, text in texts.items())
    options = " ".join(
        "--shape " + shlex.quote(f"{name}={text.strip('()').replace(' ', '')}")
        for name, text in texts.items()
    )
    return (
        f"The model leaves sizes open that were given: {had}. Give those that it was made for, "
        f"{options} with numbers, in Python shapes={{{min(opened)!r}: (...)}}."
    )


def constant_inputs(
    inputs: Sequence[onnx.ValueInfoProto], constants: Mapping[str, Any], dtypes: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """Values of inputs by name as arrays of their dtypes, and of their shapes where known.

    Raises:
        InvalidOption: A value for an unknown input, or one that its dtype or shape does not take.
    """
    declared = {value.name: _declared(value) for value in inputs}
    if unknown := constants.keys() - declared.keys():
        names = ", ".join(map(repr, declared)) or "none: it has no inputs"
        raise InvalidOption(f"a constant for input {min(unknown)!r}", f"one of {names}")
    found = {}
    for name, value in constants.items():
        given, dtype, shape = np.asarray(value), numpy_dtype(dtypes[name]), declared[name]
        fits = given.dtype.kind in "biuf" and (given.astype(dtype) == given).all()
        if not fits and not (given.dtype.kind == dtype.kind == "f"):
            raise InvalidOption(f"constant {value!r} for input {name!r}", f"numbers of {dtype}")
        array = given.astype(dtype)
        if shape is not None and len(shape) != array.ndim:
            sizes = [size if isinstance(size, int) else -1 for size in shape]
            rest = math.prod(size for size in sizes if size != -1)
            if sizes.count(-1) > 1 or (array.size % rest if -1 in sizes else array.size != rest):
                raise InvalidOption(
                    f"a constant of shape {_text(array.shape)} for input {name!r}", _text(shape)
                )
            array = array.reshape(sizes)
        found[name] = array
    return found


def _declared(value: onnx.ValueInfoProto) -> tuple[Size, ...] | None:
    """Sizes as a model declares them: numbers, names, "" for neither; None: not even the rank."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else _name(d.dim_param)
        for d in tensor.shape.dim
    )


def _name(text: str) -> str:
    """The name of an open size; empty for one that stands for sizes of any kind."""
    named = any(map(str.isalpha, text)) and text.lower() not in _NAMELESS
    return text if named else ""


def _match(
    name: str, declared: tuple[Size, ...] | None, shape: Sequence[int], sizes: dict[str, int]
) -> None:
    """Check a given shape against the declared one, and take down the sizes that have names."""
    check_shape(name, shape)
    if declared is None:
        return
    text = _text(declared)
    if len(shape) != len(declared):
        raise InvalidOption(f"{len(shape)} sizes for input {name!r}", f"{len(declared)}: {text}")
    for size, wanted in zip(shape, declared, strict=True):
        if sizes.get(wanted, size) != size if isinstance(wanted, str) else wanted != size:
            raise InvalidOption(
                f"shape {_text(shape)} for input {name!r}",
                f"{text}, as the model has it"
                + (f", with {wanted} = {sizes[wanted]}" if isinstance(wanted, str) else ""),
            )
        if isinstance(wanted, str) and wanted:
            sizes[wanted] = size


def _batch(name: str, size: Size, batch: int, sizes: dict[str, int]) -> int:
    if isinstance(size, int) and size != batch:
        raise InvalidOption(
            f"--batch {batch} for an ONNX model whose {name!r} has {size}",
            "a model exported with that batch size, or with a name in its place",
        )
    if isinstance(size, str) and size:
        sizes.setdefault(size, batch)
    return batch


def _open_axes(wanted: Mapping[str, tuple[Size, ...] | None]) -> DynamicShape:
    """The error that lists all open inputs and what to give for them."""
    got = ", ".join(f"{n!r} of shape {_text(s) if s else '?'}" for n, s in wanted.items())
    examples = _examples(wanted)
    options = " ".join(
        "--shape " + shlex.quote(f"{name}={','.join(map(str, s))}") for name, s in examples.items()
    )
    remedy = f"For example {options}, in Python shapes={examples}."
    only_first = all(s and not any(isinstance(d, str) for d in s[1:]) for s in wanted.values())
    if only_first:
        remedy += " --batch 1 (batch=1) gives the first sizes alone."
    return DynamicShape(f"input{'s' * (len(wanted) > 1)} {got}", "a number for each size", remedy)


def _examples(wanted: Mapping[str, tuple[Size, ...] | None]) -> dict[str, tuple[int, ...]]:
    """Sizes to type: one for a batch, of an image or of a sequence for others; a name has one."""
    shapes = {name: ("",) if shape is None else shape for name, shape in wanted.items()}
    axes = [(size, axis) for shape in shapes.values() for axis, size in enumerate(shape)]
    sizes = {
        size: 1
        for size, axis in axes
        if isinstance(size, str) and size and (axis == 0 or "batch" in size.lower())
    }

    def example(size: Size, axis: int, rank: int) -> int:
        if isinstance(size, int):
            return size
        usual = {3: 224, 4: 224, 5: 32}.get(rank, 128) if axis else 1
        return sizes.setdefault(size, usual) if size else usual

    return {
        name: tuple(example(size, axis, len(shape)) for axis, size in enumerate(shape))
        for name, shape in shapes.items()
    }


def _text(shape: Sequence[Size]) -> str:
    return f"({', '.join(str(size) or '?' for size in shape)})"
