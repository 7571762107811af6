"""From a PyTorch module to a Relax module, through ``torch.export`` and TVM's importer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import tvm
from torch.export import ExportedProgram

from ..build_cache.source import Source
from ..errors import ConvoyError, InvalidOption, UnsupportedDtype, UnsupportedOp
from ..progress import Stages, step
from ..threads import one_at_a_time
from . import attention, decompositions, operators
from .constants import is_random
from .content import program_content
from .export import exported, quiet
from .idempotent_writes import remove_idempotent_writes
from .inplace_views import to_views
from .input_names import name_inputs
from .promotion import promote
from .refusal import EXPECTED, PARTS, called, check_sizes, raised
from .structure import Structure
from .translator import decomposed, translate

_READ = torch.ops.aten._local_scalar_dense.default
_DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


@dataclass(frozen=True)
class Traced:
    """A function of tensors as PyTorch sees it, and the structure of its result.

    Attributes:
        program: Its parameters and buffers are in host memory.
        devices: Where PyTorch has the tensors of the result.
    """

    program: ExportedProgram
    result: Structure
    devices: tuple[torch.device, ...]

    def source(self, progress: Stages, names: Sequence[str], writes: bool = False) -> Source:
        """The network with names of its inputs, to be converted where no earlier build has it.
        With ``writes`` others read what it writes; see :func:`to_relax`."""

        def convert() -> tvm.IRModule:
            with progress.stage("import"):
                return to_relax(self.program, names, writes=writes)

        def content() -> list[str] | None:
            texts = program_content(self.program, names)
            return None if texts is None else [f"writes: {writes}", *texts]

        return Source(convert, content)


@one_at_a_time
def trace(
    function: Callable[..., Any],
    arguments: Structure,
    tensors: Sequence[torch.Tensor],
    training: bool = False,
) -> Traced:
    """Trace a function of tensors.

    Args:
        function: A ``torch.nn.Module`` or a function; its parameters become constants.
        arguments: Structure of ``(args, kwargs)``.
        tensors: The tensors among them; their values do not matter.
        training: Whether it is to be differentiated.

    Raises:
        UnsupportedOp: The module cannot be traced.
        InvalidOption: It has parameters without elements.
    """
    program, result = exported(function, arguments, tuple(tensors), training)
    held = [*program.state_dict.values(), *program.constants.values()]
    if any(isinstance(one, torch.Tensor) and one.is_meta for one in held):
        raise InvalidOption(
            "parameters on the device meta, which have no elements",
            "a module and inputs on one device, cpu or cuda",
            "module.to_empty(device=...) and load_state_dict give it elements.",
        )
    devices = _result_devices(program)
    if any(t.device.type != "cpu" for t in tensors) or _elsewhere(program):
        from torch.export.passes import move_to_device_pass

        # First, since operators such as attention decompose into others on a GPU.
        program = move_to_device_pass(program, "cpu")
    return Traced(program, result, devices)


@one_at_a_time
def to_relax(
    program: ExportedProgram,
    names: Sequence[str] = (),
    training: bool = False,
    writes: bool = False,
) -> tvm.IRModule:
    """Convert a program in host memory; its inputs and outputs are the tensors of a call in order.

    Args:
        program: The program.
        names: Of the inputs; none keeps the program's own.
        training: Whether it is to be differentiated: it may draw random numbers, and marks where
            gradients stop.
        writes: Whether writes to parameters and buffers are refused also where each call would
            write the same.

    Raises:
        UnsupportedOp: An operator that cannot be converted; also random numbers, and buffers that
            a call changes.
    """
    try:
        with quiet():
            table = _decompositions(program, training)
            if training:
                from . import training_graph  # registers operators, which takes a while

                training_graph.mark(program)
                table.update(training_graph.decompositions())
            step("decompose operators", 0, 2)
            to_views(program)
            program = decomposed(program, table)
            if not (training or writes):
                remove_idempotent_writes(program)
            _leave_out_unused_draws(program.graph)
            _check(program, training)
            step("convert operators", 1, 2)
            promote(program)
            _compact(program)
            name_inputs(program, names)
            return translate(program)
    except ConvoyError:
        raise
    except Exception as err:  # what a decomposition raises
        check_sizes(program.graph.nodes)
        raise UnsupportedOp(f"a module ({raised(err)})", EXPECTED, PARTS) from err


def parameters_of(function: Callable[..., Any]) -> list[torch.Tensor]:
    """The parameters of a module; a function has none."""
    return [*function.parameters()] if isinstance(function, torch.nn.Module) else []


def precision_of(*groups: Sequence[torch.Tensor], widest: bool = False) -> str:
    """The precision that a module has in PyTorch: the floating dtype of the first group of tensors
    that has one, of its parameters before its inputs. On a GPU, float32 is rounded to tf32 where
    ``torch.backends`` allows PyTorch's own kernels to do it: by default in convolutions.

    Args:
        widest: Whether of several dtypes it is float32, which narrows none.

    Raises:
        UnsupportedDtype: Tensors of several floating dtypes, or of float64.
    """
    for group in groups:
        found = {t.dtype for t in group if t.is_floating_point()}
        if widest and len(found) > 1 and found <= _DTYPES.keys():
            return _float32(groups)
        if len(found) > 1 or not found <= _DTYPES.keys():
            names = ", ".join(sorted(str(dtype) for dtype in found))
            raise UnsupportedDtype(
                f"a module of {names}",
                "float32, float16 or bfloat16 throughout",
                "module.to(torch.float32), or the option precision=...",
            )
        if found:
            dtype = _DTYPES[found.pop()]
            return _float32(groups) if dtype == "float32" else dtype
    return _float32(groups)


def _float32(groups: Sequence[Sequence[torch.Tensor]]) -> str:
    """The precision of float32 by the flags of ``torch.backends``."""
    on_gpu = any(tensor.is_cuda for group in groups for tensor in group)
    if not on_gpu or torch.backends.cudnn.conv.fp32_precision != "tf32":
        return "float32"
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "tf32_conv"


def _decompositions(program: ExportedProgram, training: bool) -> Any:
    """PyTorch's own to its core operators, without those that are converted as a whole."""
    table = torch.export.default_decompositions()
    for name in operators.whole(program.graph, training):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            table.pop(getattr(packet, overload), None)
    table.update(attention.decompositions(program) | decompositions.DECOMPOSITIONS)
    for node in program.graph.nodes:
        if rule := decompositions.NAMED.get(str(node.target)):
            table[node.target] = rule
    return table


def _check(program: ExportedProgram, training: bool) -> None:
    """Raise UnsupportedOp for what a compiled function cannot do as PyTorch does."""
    signature = program.graph_signature
    for name in (*signature.buffers_to_mutate.values(), *signature.parameters_to_mutate.values()):
        raise UnsupportedOp(
            f"a module that changes {name.removeprefix('function.')!r} when it is called",
            "one without side effects",
            "module.eval() first: batch norm then leaves its statistics alone. Other state may be "
            "an argument and a result.",
        )
    for name in signature.user_inputs_to_mutate.values():
        raise UnsupportedOp(
            f"a module that writes to input {name.removeprefix('tensors_')}",
            "one without side effects",
            "x = x.clone() before it is written to.",
        )
    for node in program.graph.find_nodes(op="call_function", target=_READ):
        raise UnsupportedOp(
            f"a number that is read from a tensor while the module runs ({called(node)})",
            "the tensor",
            "Leave out item(): a tensor without axes computes as a number does.",
        )
    for node in program.graph.nodes:
        drawn = training and node.target is torch.ops.convoy.uniform.default
        if node.op == "call_function" and is_random(node.target) and not drawn:
            raise UnsupportedOp(
                f"{called(node)}, which draws random numbers",
                "a module that gives the same result each time",
                "module.eval() first: dropout then does nothing.",
            )


def _leave_out_unused_draws(graph: torch.fx.Graph) -> None:
    """Erase random numbers that no result depends on, such as those by which a module skips layers
    in training alone."""
    graph.eliminate_dead_code(lambda node: node.is_impure() and not is_random(node.target))


def _result_devices(program: ExportedProgram) -> tuple[torch.device, ...]:
    (output,) = program.graph.find_nodes(op="output")
    return tuple(node.meta["val"].device for node in output.args[0])


def _compact(program: ExportedProgram) -> None:
    """Lay parameters out in the order of their axes: the importer copies those of other layouts
    through numpy, which has no bfloat16."""
    for held in (program.state_dict, program.constants):
        for name, tensor in held.items():
            if isinstance(tensor, torch.Tensor) and not tensor.is_contiguous():
                held[name] = tensor.detach().contiguous()


def _elsewhere(program: ExportedProgram) -> bool:
    """Whether a parameter or buffer is not in host memory."""
    held = [*program.state_dict.values(), *program.constants.values()]
    return any(isinstance(t, torch.Tensor) and t.device.type != "cpu" for t in held)
