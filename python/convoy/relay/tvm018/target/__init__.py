"""`tvm.target`: targets as TVM 0.18 wrote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import tvm

from convoy.errors import InvalidOption
from convoy.relay.op.strategy.generic import GenericFunction
from convoy.relay.op.strategy.generic import (
    override_native_generic_func as override_native_generic_func,
)
from convoy.relay.tvm018.modules import forward
from convoy.relay.virtual_device import VirtualDevice as VirtualDevice

generic_func = GenericFunction

# What became a `relay.backend.Runtime` and `Executor`; one runtime has all of it.
_OF_RUNTIMES = ("system-lib", "link-params", "runtime", "executor", "interface-api", "unpacked-api")
_EXTERNAL = ("cutlass", "cudnn", "cublas", "tensorrt")


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


class _TargetClass(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (tvm.target.Target, ExternalTarget))

    def __getattr__(cls, name: str) -> Any:
        return getattr(tvm.target.Target, name)


class Target(metaclass=_TargetClass):
    """Makes a target as TVM 0.18 did; an instance of it is TVM's Target.

    Args:
        target: A name, a command line, a dict or another target.
        host: The host's target.

    Raises:
        InvalidOption: A malformed command line.
    """

    def __new__(cls, target: Any, host: Any = None) -> Any:
        if isinstance(target, str) and " " in target.strip():
            target = _from_command_line(target)
        options = {"kind": target} if target in _EXTERNAL else target
        if isinstance(options, Mapping) and "compiler" in options:  # of Collage
            options = {**options, "kind": options["compiler"]}
        if isinstance(options, Mapping) and options.get("kind") in _EXTERNAL:
            return ExternalTarget(
                options["kind"], {k: v for k, v in options.items() if k != "kind"}
            )
        if host is None:
            return tvm.target.Target(target)
        return tvm.target.Target(target, cls(host) if isinstance(host, str) else host)


def _from_command_line(text: str) -> dict[str, Any]:
    """Parse `cuda -libs=cudnn,cublas -arch=sm_90` or `llvm -num-cores 4` to a dict."""
    kind, *words = text.split()
    options: dict[str, Any] = {"kind": kind}
    while words:
        word = words.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        if not word.startswith("-") or (equals and not value):
            raise InvalidOption(f"target '{text}'", "options such as -libs=cudnn")
        if name in _OF_RUNTIMES:
            continue
        if not value:  # a flag
            options[name] = 1
            continue
        listed = name in ("libs", "mattr", "keys")
        options[name] = value.split(",") if listed else int(value) if value.isdigit() else value
    return options


def cuda(
    model: str = "unknown",
    arch: str | None = None,
    options: str | Sequence[str] | None = None,
    **attributes: Any,
) -> Any:
    """Make a CUDA target.

    Args:
        model: Accepted; the GPU is asked.
        arch: Its architecture, "sm_90a".
        options: Further options as on a command line, "-libs=cudnn".
        **attributes: Further options by name.
    """
    del model
    words = [options] if isinstance(options, str) else options or []
    given = _from_command_line(" ".join(["cuda", *words])) if words else {"kind": "cuda"}
    if arch is not None:
        attributes["arch"] = arch
    return Target({**given, **attributes})


def make_compilation_config(ctxt: Any, target: Any, target_host: Any = None) -> SimpleNamespace:
    """Return the targets of a build, for `relay.transform.PlanDevices`."""
    del ctxt, target_host
    found = list(target) if isinstance(target, (list, tuple)) else [target]
    return SimpleNamespace(primitive_targets=found)


def current_target(allow_none: bool = True) -> Any:
    """Return the target whose `with` block is entered."""
    return tvm.target.Target.current(allow_none)


def create(target: Any) -> Any:
    """Make a target, under the name of scripts of 2019."""
    return Target(target)


__getattr__ = forward("tvm.target")
