"""The part of TVM 0.18's own namespace that scripts with Relay in them use.

    from convoy.relay import tvm018 as tvm

Names that later versions dropped or changed are here as they were (`tvm.nd.array`, `tvm.IRModule`
of Relay functions, targets as command lines, `tvm.ir.save_json` of Relay modules, Relay's keys in a
PassContext); any other name is that of the installed TVM.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import tvm as _tvm

from convoy import graph_executor, relay
from convoy.errors import CorruptArtefact, InvalidOption
from convoy.relay.op.contrib import cutlass
from convoy.relay.params import to_array

IRModule = relay.IRModule
gpu = _tvm.cuda
_EXTERNAL = ("cutlass", "cudnn", "cublas", "tensorrt")


class _Namespace(SimpleNamespace):
    """Names of this module, and for all others those of a module of TVM."""

    def __init__(self, behind: Callable[[], Any], **names: Any) -> None:
        super().__init__(**names)
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind(), name)


# ---- arrays


def _array(value: Any, device: Any = None, mem_scope: Any = None) -> Any:
    """Make a tensor on a device (default: the CPU) of an array, a number or another tensor."""
    del mem_scope
    return _tvm.runtime.tensor(to_array(value), device)


def _empty(shape: Any, dtype: str = "float32", device: Any = None, mem_scope: Any = None) -> Any:
    del mem_scope
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return _tvm.runtime.empty(sizes, dtype, _tvm.cpu(0) if device is None else device)


nd = _Namespace(
    lambda: _tvm.runtime,
    array=_array,
    empty=_empty,
    NDArray=_tvm.runtime.Tensor,
    cpu=_tvm.cpu,
    cuda=_tvm.cuda,
    gpu=_tvm.cuda,
    device=_tvm.device,
)


# ---- targets


class ExternalTarget:
    """A target of a code generator, `{"kind": "cutlass", "sm": 80}`, which TVM no longer knows.

    Attributes:
        kind: Has the `name`.
        attrs: The other options, which are ignored: placement measures.
    """

    def __init__(self, kind: str, attrs: Mapping[str, Any]) -> None:
        self.kind, self.attrs = SimpleNamespace(name=kind), dict(attrs)

    def __repr__(self) -> str:
        return f"ExternalTarget({self.kind.name!r}, {self.attrs!r})"


def make_target(target: Any, host: Any = None) -> Any:
    """Make a target as TVM 0.18 did.

    Args:
        target: A name, a command line, a dict or another target.
        host: The host's target.

    Raises:
        InvalidOption: A malformed command line.
    """
    if isinstance(target, str) and " " in target.strip():
        target = _from_command_line(target)
    options = {"kind": target} if target in _EXTERNAL else target
    if isinstance(options, Mapping) and options.get("kind") in _EXTERNAL:
        return ExternalTarget(options["kind"], {k: v for k, v in options.items() if k != "kind"})
    return _tvm.target.Target(target) if host is None else _tvm.target.Target(target, host)


def _from_command_line(text: str) -> dict[str, Any]:
    """Parse `cuda -libs=cudnn,cublas -arch=sm_90` to a dict."""
    kind, *words = text.split()
    options: dict[str, Any] = {"kind": kind}
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not equals:
            raise InvalidOption(f"target '{text}'", "options such as -libs=cudnn")
        listed = name in ("libs", "mattr", "keys")
        options[name] = value.split(",") if listed else int(value) if value.isdigit() else value
    return options


target = _Namespace(
    lambda: _tvm.target,
    Target=make_target,
    cuda=lambda **options: make_target({"kind": "cuda", **options}),
)


# ---- passes


def pass_context(
    opt_level: int = 2,
    required_pass: Sequence[str] | None = None,
    disabled_pass: Sequence[str] | None = None,
    instruments: Any = None,
    config: Mapping[str, Any] | None = None,
    **more: Any,
) -> Any:
    """Make TVM's PassContext.

    Relay's keys in `config` (`relay.FuseOps.max_depth`, ...) get a warning: its passes do not run.
    """
    kept = dict(config or {})
    dropped = [key for key in kept if key.startswith("relay.")]
    for key in dropped:
        del kept[key]
    if dropped:
        names = ", ".join(dropped)
        warnings.warn(f"{names}: Relay's own passes do not run, no effect", stacklevel=2)
    return _tvm.transform.PassContext(
        opt_level=opt_level, required_pass=required_pass, disabled_pass=disabled_pass,
        instruments=instruments, config=kept, **more,
    )  # fmt: skip


transform = _Namespace(
    lambda: _tvm.transform, PassContext=pass_context, Sequential=relay.transform.Sequential
)


# ---- modules, files, executors


def _load_module(path: Any, fmt: str = "") -> Any:
    """Load a network that Convoy exported, or any module that TVM can load."""
    del fmt
    try:
        return relay.load_module(path)
    except CorruptArtefact:
        return _tvm.runtime.load_module(path)


ir = _Namespace(
    lambda: _tvm.ir,
    IRModule=relay.IRModule,
    save_json=relay.save_json,
    load_json=relay.load_json,
    structural_equal=relay.structural_equal,
    assert_structural_equal=relay.assert_structural_equal,
)
runtime = _Namespace(
    lambda: _tvm.runtime,
    load_module=_load_module,
    load_param_dict=relay.load_param_dict,
    save_param_dict=relay.save_param_dict,
    vm=relay.vm,
    ndarray=nd,
)
parser = SimpleNamespace(parse=relay.parse, parse_expr=relay.parse_expr, fromtext=relay.fromtext)
contrib = _Namespace(
    lambda: __import__("tvm.contrib", fromlist=["utils"]),
    graph_executor=graph_executor,
    graph_runtime=graph_executor,
    cutlass=cutlass,
)


def __getattr__(name: str) -> Any:
    return getattr(_tvm, name)
