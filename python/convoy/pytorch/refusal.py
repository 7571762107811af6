"""Errors about what cannot be imported, which name the operator and the submodule that calls it."""

from __future__ import annotations

import re
import textwrap
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..errors import ConvoyError, InvalidOption, UnsupportedOp

EXPECTED = "operators that can be imported from PyTorch"
PARTS = 'torch.compile(module, backend="convoy") compiles what it can and runs the rest eagerly.'
_BUFFERS = (
    "The values of buffers are known: what sizes or branches depend on, such as lengths that stay, "
    "may be one. Compile the part of the module before it alone, such as a backbone."
)
_KEYWORDS = "convoy.compile(module, (), {...}) takes keyword arguments."
_QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")
#: Whose lines are not the user's.
_OTHERS = (Path(torch.__file__).parent, Path(__file__).parents[1])
#: Characters of an error of PyTorch's in one of Convoy's, at most.
_LONGEST = 400
#: An operator as TVM prints it.
_OBJECT = re.compile(r'ir\.Op\(.*?name="([\w.]+)".*support_level=\d+\)')
#: Attribute of the traced wrapper that holds the user's module.
WRAPPED = "function"


def check_python(function: Callable[..., Any], training: bool) -> None:
    """Raise UnsupportedOp for quantized submodules, and for scripted ones that are to be trained:
    what they are converted to has other parameters."""
    if not isinstance(function, torch.nn.Module):
        return
    for name, module in function.named_modules():
        quantized = type(module).__module__.startswith(_QUANTIZED)
        if quantized or (training and isinstance(module, torch.jit.ScriptModule)):
            how = "quantized" if quantized else "scripted"
            where = f" {name}" if name else ""
            raise UnsupportedOp(
                f"the {how} module{where} ({type(module).__name__})",
                "modules of floating-point numbers that are written in Python",
                f"Compile the module that was {how}.",
            )


def is_unknown(node: torch.fx.Node, known: Collection[str]) -> bool:
    """Whether a node calls an operator without a converter."""
    return node.op == "call_function" and node.target.__name__ not in known


def check_known(unknown: Sequence[torch.fx.Node]) -> None:
    """Raise UnsupportedOp for operators without a converter, each with one place that calls it."""
    missing: dict[str, str] = {}
    for node in unknown:
        missing.setdefault(node.target.__name__, called(node))
    if len(missing) > 1:  # it calls others, such as checks of the result of one that is listed
        missing.pop("with_effects", None)
    if missing:
        raise UnsupportedOp(", ".join(missing.values()), EXPECTED, PARTS)


def check_sizes(nodes: Iterable[torch.fx.Node]) -> None:
    """Raise UnsupportedOp for an operator whose result has a size that depends on values."""
    for node in nodes:
        results = pytree.tree_leaves(node.meta.get("val"))
        sizes = [size for x in results if isinstance(x, torch.Tensor) for size in x.shape]
        if any(isinstance(size, torch.SymInt) for size in sizes):
            raise UnsupportedOp(
                f"{called(node)}, of whose result the size depends on values of inputs",
                "sizes that are known when it is compiled",
                f"Compute all elements, and choose among them with torch.where. {PARTS}",
            )


def refused(node: torch.fx.Node, err: Exception) -> UnsupportedOp:
    """What a converter raised, with the operator and its place."""
    if isinstance(err, UnsupportedOp):
        return UnsupportedOp(f"{err.got} ({called(node)})", err.expected, err.remedy or PARTS)
    return UnsupportedOp(f"{called(node)} ({raised(err)})", EXPECTED, PARTS)


def raised(err: Exception) -> str:
    """Type and first line of an error, shortened: PyTorch appends nodes of its graphs and hints to
    itself, and repeats conditions, which may be sums of hundreds of terms; TVM prints operators
    as objects, in whose places their names are."""
    reason = next((line for line in str(err).splitlines() if line.strip()), "")
    reason = _OBJECT.sub(r"\1", reason)
    return f"{type(err).__name__}: {textwrap.shorten(reason, _LONGEST, placeholder=' ...')}"


def untraceable(
    function: Callable[..., Any], err: Exception, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> ConvoyError:
    """What torch.export raised, with the submodule and the line of the user's code; where a call
    fails without Convoy, too, an error about its arguments."""
    if "Guard failed" in str(err):
        return InvalidOption(
            f"example inputs that the exported program does not take ({raised(err)})",
            "inputs of the sizes that it was exported for",
            "torch.export.export(..., dynamic_shapes=...) leaves sizes open.",
        )
    if (own := _failure(function, args, kwargs)) is not None:
        return InvalidOption(
            f"example inputs for which the module raises{_place(function, own)} {raised(own)}",
            "the arguments of a call that runs",
            _KEYWORDS if any(isinstance(arg, Mapping) for arg in args) else "",
        )
    return UnsupportedOp(
        f"a module that torch.export cannot trace{_place(function, err)} ({raised(err)})",
        "a module that runs on these inputs, and whose operations do not depend on their values",
        f"{_BUFFERS} {PARTS}" if "data-dependent" in str(err) else PARTS,
    )


def _failure(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Exception | None:
    """What a call raises without Convoy. A module in training that has buffers is not called: it
    would change them."""
    if isinstance(function, torch.nn.Module) and function.training and [*function.buffers()]:
        return None
    try:
        with torch.no_grad():
            function(*args, **kwargs)
    except Exception as err:
        return err
    return None


def _place(function: Callable[..., Any], err: Exception) -> str:
    """Where an exception was raised: the submodule and the line of the user's code."""
    names: dict[int, str] = {}
    if isinstance(function, torch.nn.Module):
        # A trace has other objects for submodules, with the same attributes.
        names = {id(vars(module)): name for name, module in function.named_modules()}
    place = line = ""
    for frame, number in traceback.walk_tb(err.__traceback__):
        path = Path(frame.f_code.co_filename)
        if path.is_file() and not any(map(path.is_relative_to, _OTHERS)):  # no file: generated
            line = f"line {number} of {path}"
        called = frame.f_locals.get("self")
        if isinstance(called, torch.nn.Module) and names.get(id(vars(called))):
            place = f"{names[id(vars(called))]} ({type(called).__name__})"
    where = ", ".join(filter(None, (place, line)))
    return f" at {where}" if where else ""


def called(node: torch.fx.Node) -> str:
    """The operator of a node, and the submodule that calls it where there is one."""
    operator = f"the operator {node.target}"
    stack = node.meta.get("nn_module_stack") or {}
    path, kind = next(reversed(stack.values()), ("", ""))
    path = path.removeprefix(WRAPPED).removeprefix(".")
    kind = kind if isinstance(kind, str) else kind.__name__
    return f"{operator} in {path} ({kind.rpartition('.')[2]})" if path else operator
