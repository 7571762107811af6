"""From a function of tensors to an exported program, through ``torch.export``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch._dynamo.convert_frame import compile_lock
from torch.distributions import Distribution
from torch.export import ExportedProgram
from torch.nn.modules import transformer

from ..errors import ConvoyError, InvalidOption
from .higher_order import Straight
from .known import Known
from .recurrent import with_shapes_of_states
from .refusal import check_python, untraceable
from .scripted import in_python
from .side_effects import Attributes, check_repeatable, restored
from .structure import Structure, flatten, unflatten
from .unchecked import Unchecked


def exported(
    function: Callable[..., Any],
    arguments: Structure,
    tensors: tuple[torch.Tensor, ...],
    training: bool = False,
) -> tuple[ExportedProgram, Structure]:
    """Trace a function, and once more with the values that depend on no input where some are
    needed.

    Args:
        training: Whether to trace with gradients, so that the program has where they stop.

    Returns:
        The program, and the structure of its result.

    Raises:
        UnsupportedOp: The function cannot be traced, or keeps a state in attributes.
    """
    check_python(function, training)
    args, kwargs = unflatten(arguments, tensors)
    with in_python(function, args, kwargs) as traceable, with_shapes_of_states():
        return _traced(traceable, arguments, tensors, training)


def _traced(
    function: Callable[..., Any],
    arguments: Structure,
    tensors: tuple[torch.Tensor, ...],
    training: bool,
) -> tuple[ExportedProgram, Structure]:
    found: list[Structure] = []
    failure: Exception | None = None
    try:
        program = _export(_Flat(function, arguments, found), tensors, training)
        if not _is_dynamic(program):
            return program, found[-1]
    except ConvoyError:
        raise
    except Exception as err:  # torch.export raises what the module raises, and errors of its own
        failure = err
    try:
        program = _export(_Flat(function, arguments, found, knows=True), tensors, training)
    except ConvoyError:
        raise
    except Exception as err:  # what is left where more is known
        if failure is not None:
            raise untraceable(function, err, *unflatten(arguments, tensors)) from err
    return program, found[-1]


def straightened(program: ExportedProgram, tensors: tuple[torch.Tensor, ...]) -> ExportedProgram:
    """Export a program again, with the functions that it calls in place."""
    _, arguments = flatten((tensors, {}))
    return _export(_Flat(Straight(program), arguments, [], knows=True), tensors, training=False)


def _export(flat: _Flat, tensors: tuple[torch.Tensor, ...], training: bool) -> ExportedProgram:
    held = [*tensors, *flat.parameters(), *flat.buffers()]
    changed = flat.changed  # torch.export replaces the list by a copy of before
    inference = torch.inference_mode(any(one.is_inference() for one in held) and not training)
    unchanged = restored(flat.function)
    with inference, torch.set_grad_enabled(training), quiet(), _unread(), unchanged:
        depth = torch._C._functorch.get_dynamic_layer_stack_depth()
        try:
            program = torch.export.export(flat, tensors)
        except _FailedError as failed:
            raise failed.error from None
        finally:  # a trace of vmap() or grad() that fails leaves its layers
            torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
    if changed and not training:
        check_repeatable(flat.function, flat.arguments, tensors, changed)
    _leave_out_failures(program.graph)
    return program


def _leave_out_failures(graph: torch.fx.Graph) -> None:
    """Erase calls that raised what the module caught: they have no value, as writes to buffers."""
    for node in list(graph.nodes):
        schema = getattr(node.target, "_schema", None)
        if schema is None or schema.is_mutable or not schema.returns:
            continue
        if node.meta.get("val") is None:
            graph.erase_node(node)


def _is_dynamic(program: ExportedProgram) -> bool:
    """Whether a size or a number depends on values of tensors."""
    values = [node.meta.get("val") for node in program.graph.nodes]
    sizes = [size for one in values if isinstance(one, torch.Tensor) for size in one.shape]
    return any(isinstance(one, torch.SymInt | torch.SymFloat) for one in (*values, *sizes))


class _FailedError(Exception):
    """An error of a function that is traced. Of a RuntimeError about values ``torch.export`` prints
    the graph so far, thousands of lines, also where the next trace knows the values."""

    def __init__(self, error: RuntimeError) -> None:
        super().__init__(str(error))
        self.error = error


class _Flat(torch.nn.Module):
    """A function as a module from tensors to a tuple of tensors.

    The structure of its result is appended to ``found`` whenever it is traced, and ``changed`` has
    the names of the attributes that it has changed; with ``knows`` the trace has the values that
    depend on no input. Autocast around it becomes a part of it, since a trace has no casts of one
    that is around the trace.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Structure,
        found: list[Structure],
        knows: bool = False,
    ) -> None:
        super().__init__()
        self.function, self.arguments, self.found = function, arguments, found
        self.changed: list[str] = []
        self.autocast = [(kind, torch.get_autocast_dtype(kind)) for kind in _autocast_devices()]
        held = self._numbers()
        # In a function: torch.export replaces the tensors that it finds in attributes.
        self.values = (lambda: held) if knows else None

    def _numbers(self) -> list[torch.Tensor]:
        """Buffers, and parameters of one element, such as a temperature."""
        return [*self.buffers(), *(one for one in self.parameters() if one.numel() == 1)]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = unflatten(self.arguments, tensors)
        mode = nullcontext() if self.values is None else Known(self._numbers(), self.values())
        before = Attributes(self.function)
        with ExitStack() as stack, Unchecked(), mode:
            for kind, dtype in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype))
            try:
                result = self.function(*args, **kwargs)
            except RuntimeError as err:
                raise _FailedError(err) from None
        self.changed[:] = before.changed()
        results, structure = flatten(result)
        self.found.append(structure)
        if not results:
            raise InvalidOption("a module without any tensor among its results", "one or more")
        return tuple(results)


@contextmanager
def _unread() -> Iterator[None]:
    """Have PyTorch's transformers apply the masks that they are given, and distributions take their
    arguments unchecked. They read whether a mask is causal, which selects a kernel and not a
    result, and whether a scale is positive."""
    causal, checked = transformer._detect_is_causal_mask, Distribution._validate_args
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = causal
        Distribution.set_default_validate_args(checked)


def _autocast_devices() -> list[str]:
    return [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]


@contextmanager
def quiet() -> Iterator[None]:
    """Have torch trace without warnings about its own internals, and without a stack trace for each
    node, which takes a third of the time and is not read; also without the caller's autocast, and
    while no other thread is traced by Dynamo, which reads the same settings of the process."""
    config = torch.fx.config
    before = getattr(config, "do_not_emit_stack_traces", False)  # absent in older versions
    with compile_lock, warnings.catch_warnings(), ExitStack() as stack:
        for kind in _autocast_devices():
            stack.enter_context(torch.autocast(kind, enabled=False))
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        # restored() puts attributes back, and check_repeatable() finds out what they are for.
        warnings.filterwarnings("ignore", "The tensor attributes? .* assigned during export")
        config.do_not_emit_stack_traces = True
        try:
            yield
        finally:
            config.do_not_emit_stack_traces = before
