"""TorchScript modules as modules whose operations a trace sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import UnsupportedOp
from .refusal import untraceable
from .structure import Structure, flatten, unflatten


@contextmanager
def in_python(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[Callable[..., Any]]:
    """Give a function that calls no scripted module, and is otherwise the one given; inside of the
    context its scripted submodules are replaced. They are converted for the arguments that they get
    in a call, so the function is called once where it has some.

    Raises:
        UnsupportedOp: A scripted module that PyTorch cannot convert.
    """
    if isinstance(function, torch.jit.ScriptModule):
        yield _converted(function, "", args, kwargs)
        return
    places = _places(function)
    calls = {name: _Recorded(module) for name, (_, module) in places.items()}
    try:
        if calls:
            _put(places, calls)
            _call(function, args, kwargs)
            _put(places, {name: _of_call(name, call) for name, call in calls.items()})
        yield function
    finally:
        _put(places, {name: module for name, (_, module) in places.items()})


class _Recorded(torch.nn.Module):
    """A scripted module, and the arguments of its last call."""

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        super().__init__()
        self.module = module
        self.call: tuple[tuple[Any, ...], Mapping[str, Any]] | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.call = args, kwargs
        return self.module(*args, **kwargs)


class _Converted(torch.nn.Module):
    """A converted module, called as the scripted one, with a result of its ``structure``."""

    def __init__(
        self,
        module: torch.nn.Module,
        bind: Callable[..., tuple[Any, ...]],
        structure: Structure,
    ) -> None:
        super().__init__()
        self.module, self.bind, self.structure = module, bind, structure

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        tensors, _ = flatten(self.module(*self.bind(args, kwargs)))
        return unflatten(self.structure, tensors)


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    try:
        with torch.no_grad():
            function(*args, **kwargs)
    except Exception as err:  # what the module raises
        raise untraceable(function, err, args, kwargs) from err


def _places(function: Callable[..., Any]) -> dict[str, tuple[torch.nn.Module, Any]]:
    """Scripted submodules by name, with the modules that hold them."""
    if not isinstance(function, torch.nn.Module):
        return {}
    return {
        f"{path}.{name}".removeprefix("."): (owner, module)
        for path, owner in function.named_modules()
        if not isinstance(owner, torch.jit.ScriptModule)
        for name, module in owner.named_children()
        if isinstance(module, torch.jit.ScriptModule)
    }


def _put(
    places: Mapping[str, tuple[torch.nn.Module, Any]], modules: Mapping[str, torch.nn.Module]
) -> None:
    for name, (owner, _) in places.items():
        owner._modules[name.rpartition(".")[2]] = modules[name]


def _of_call(name: str, recorded: _Recorded) -> torch.nn.Module:
    if recorded.call is None:  # nothing calls it
        return recorded.module
    return _converted(recorded.module, name, *recorded.call)


def _converted(
    module: torch.jit.ScriptModule, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> _Converted:
    """A module of the same results, which are compared for these arguments."""

    def bind(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        rest = module.forward.schema.arguments[1 + len(args) :]
        return (*args, *(kwargs.get(one.name, one.default_value) for one in rest))

    try:
        if module.inlined_graph.findAllNodes("prim::ConstantMKLDNNTensor"):
            raise ValueError("weights in oneDNN's format, as of torch.jit.optimize_for_inference")
        given = bind(args, kwargs)
        with torch.no_grad():
            results, structure = flatten(module(*args, **kwargs))
            converted = _Converted(_graph(module, given), bind, structure)
            got, _ = flatten(converted(*args, **kwargs))
        torch.testing.assert_close(got, results, rtol=1e-3, atol=1e-3, equal_nan=True)
    except Exception as err:  # the converter raises errors of many kinds
        where = f" {name}" if name else ""
        reason = next(iter(str(err).splitlines()), "")
        raise UnsupportedOp(
            f"the scripted module{where} ({type(err).__name__}: {reason})",
            "a scripted module that make_fx traces, or torch._export.converter converts",
            "Compile the module that was scripted.",
        ) from err
    return converted


def _graph(module: torch.jit.ScriptModule, args: tuple[Any, ...]) -> torch.nn.Module:
    """The operators that the interpreter of scripts calls, loops unrolled; where a branch depends
    on values, what the converter of scripts makes of it, ``torch.cond``."""
    from torch._export.converter import TS2EPConverter
    from torch.fx.experimental.proxy_tensor import make_fx

    try:
        # Without gradients, attention is one operator; optimizations run operators of their own.
        with torch.enable_grad(), torch.jit.optimized_execution(False):
            return make_fx(module, pre_dispatch=True)(*args)
    except RuntimeError:
        return TS2EPConverter(module, args, {}).convert().module()
