"""``convoy.compile``: a PyTorch module in, a callable on torch tensors out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InvalidOption, LibraryMissing

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from .module import TorchModule


def compile(
    module: Callable[..., Any],
    example_inputs: Any,
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    batch: int | Sequence[int] | None = None,
    precision: str | None = None,
    **options: Any,
) -> TorchModule:
    """Compile a PyTorch module for the device that its tensors are on.

    A module on a CPU is compiled by LLVM, one on a GPU as :func:`convoy.build` does it. The result
    takes and gives torch tensors and is called as the module is, from any thread; on a GPU it
    enqueues on torch's current stream and does not wait for it.

    Args:
        module: A ``torch.nn.Module`` in evaluation mode, a function of tensors, or what
            ``torch.export`` made of one, whose open axes get the sizes of the example inputs. Its
            parameters are taken over as they are now; see :meth:`TorchModule.update_parameters`.
        example_inputs: The positional arguments of a call: a tensor or a tuple. Shapes, dtypes and
            whatever is not a tensor are those of every later call; values of tensors do not matter.
        example_kwargs: The keyword arguments of a call.
        batch: Batch sizes to compile for, instead of that of the example inputs. A call with a
            batch size in between is padded to the next one, and its results are cut; the sizes
            share one set of weights and one exported file. Batched is every input whose first
            dimension is that of the first one.
        precision: The default is the dtype of the module's parameters: float32, float16 or
            bfloat16. On a GPU, float32 is rounded to tf32 where ``torch.backends`` allows it, by
            default in convolutions. Inputs and outputs keep their dtypes in any case.
        options: Those of :func:`convoy.build`.

    Returns:
        A :class:`TorchModule`.

    Raises:
        LibraryMissing: PyTorch is not installed.
        InvalidOption: Arguments that the module does not take, tensors on several devices, or
            an option that there is not.
        UnsupportedOp, UnsupportedDtype: Something that cannot be traced or imported; the message
            names it. ``torch.compile(module, backend="convoy")`` compiles the rest.
    """
    require_torch()
    from torch.export import ExportedProgram

    from .imports import import_all

    import_all()
    from .batches import check_sizes
    from .module import TorchModule

    if isinstance(module, ExportedProgram):
        module = _callable(module)
    if not callable(module):
        raise InvalidOption(f"a module of type {type(module).__name__}", "a torch.nn.Module")
    several = type(example_inputs) in (tuple, list)  # a named tuple is one argument
    args = tuple(example_inputs) if several else (example_inputs,)
    sizes = () if batch is None else check_sizes(batch)
    return TorchModule(module, args, _by_name(example_kwargs), sizes, precision, options)


def _by_name(kwargs: Any) -> dict[str, Any]:
    if not isinstance(kwargs, Mapping | None):
        got = f"example_kwargs of type {type(kwargs).__name__}"
        raise InvalidOption(got, "a dictionary of arguments by name")
    return dict(kwargs or {})


def _callable(program: ExportedProgram) -> torch.nn.Module:
    """The module of a program, which takes by keyword what it was exported with by keyword."""
    module = program.module()
    _, keyword = program.call_spec.in_spec.children()
    signature = inspect.signature(type(module).forward)
    parameters = [
        one.replace(kind=one.KEYWORD_ONLY) if one.name in keyword.context else one
        for one in signature.parameters.values()
    ]
    type(module).forward.__signature__ = signature.replace(parameters=parameters)
    return module


def require_torch() -> None:
    """Raise LibraryMissing where PyTorch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError as err:
        raise LibraryMissing(
            f"no PyTorch ({err})", "torch 2.10 or newer", 'pip install "torch>=2.10"'
        ) from None
