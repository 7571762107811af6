"""Compilation of Relay modules under the interface of TVM 0.18: `relay.build`."""

from __future__ import annotations

import platform
import re
import warnings
from collections.abc import Mapping
from typing import Any

import convoy
from convoy.errors import DynamicShape, InvalidOption, UnsupportedOp
from convoy.graph_executor import GraphExecutorFactoryModule
from convoy.ir.dtypes import HALF_DTYPES
from convoy.relay import ast
from convoy.relay import types as ty
from convoy.relay.ast import Function
from convoy.relay.convert import to_relax
from convoy.relay.convert.signature import bound_params
from convoy.relay.infer import infer_module
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule, as_module
from convoy.relay.restriction import BACKENDS
from convoy.relay.specialized import with_static_shapes
from convoy.relay.transform.context import PassContext
from convoy.relay.tuning.history import History
from convoy.relay.visit import bind, post_order
from convoy.threads import one_at_a_time

# Precision follows the dtype of what convolutions and GEMMs compute in, in this order.


@one_at_a_time
def build(
    ir_mod: IRModule | Function,
    target: Any = None,
    target_host: Any = None,
    executor: Any = None,
    runtime: Any = None,
    workspace_memory_pools: Any = None,
    constant_memory_pools: Any = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
    **options: Any,
) -> GraphExecutorFactoryModule:
    """Compile a Relay module.

    Args:
        ir_mod: A module, or a function, which becomes `main`.
        target: "cuda" or "llvm", a Target, a list of which the first device target counts
            (`[cuda, cutlass]`), or a dict from devices to targets; None is the current Target.
        target_host, executor, runtime: Accepted; there is one host, one executor and one runtime.
        workspace_memory_pools, constant_memory_pools: Accepted with a warning.
        params: Values by name, which are bound as constants; unknown names are ignored.
        mod_name: The name under which the factory makes executors.
        **options: Options of `convoy.build` (precision, objective, backends, records, ...). Without
            `precision` the module keeps its own: float32 stays float32.

    Raises:
        UnsupportedOp, UnsupportedDtype, UnsupportedLayout: Code that cannot be compiled; the
            message has the place.
        RelayTypeError: Shapes, dtypes or parameters that do not fit.
        DynamicShape: A dimension without a size; `relay.vm.compile` takes those.
        InvalidOption: An unknown target, or the runtime "crt" of microcontrollers.
    """
    mod = as_module(ir_mod)
    kind = device_target(target)
    if runtime is not None and str(runtime) != "cpp":
        raise InvalidOption(f"runtime '{runtime}'", "'cpp'", "Convoy compiles for hosts with an OS")
    for name, value in (
        ("workspace_memory_pools", workspace_memory_pools),
        ("constant_memory_pools", constant_memory_pools),
    ):
        if value is not None:
            warnings.warn(f"{name} has no meaning here; memory is planned as a whole", stacklevel=2)
    warn_about_passes(stacklevel=3)
    infer_module(mod)
    check_graph(mod)
    from_attributes(mod, kind, options)
    compiled = convoy.build(to_relax(static_graph(mod, params), params), target=kind, **options)
    return GraphExecutorFactoryModule(compiled, mod, kind, mod_name)


def from_attributes(mod: IRModule, kind: str, options: dict[str, Any]) -> None:
    """Set options that passes, partitioning and tuning logs imply, unless they are given."""
    options.setdefault("precision", precision_of(mod))
    if kind == "cuda" and BACKENDS in mod.attrs:
        options.setdefault("backends", tuple(mod.attrs[BACKENDS]))
    if kind == "cuda" and (log := History.path()):
        options.setdefault("records", log)


def device_target(target: Any) -> str:
    """Return the kind of target to compile for, "cuda" or "llvm".

    Libraries in a target (`-libs=cudnn`) and targets of external code generators (cutlass) are
    accepted: placement decides which library runs an operator.

    Args:
        target: Anything that `relay.build` accepts.

    Raises:
        InvalidOption: Another target, or none.
    """
    if target is None:
        target = tvm.target.Target.current(allow_none=True)
        if target is None:
            raise InvalidOption("no target", '"cuda" or "llvm"', "Pass target=, or use with Target")
    if isinstance(target, dict) and "kind" not in target:
        if not target:
            raise InvalidOption("an empty dict of targets", '"cuda" or "llvm"')
        target = next(iter(target.values()))
    if isinstance(target, (list, tuple)):
        kinds = [device_target(t) for t in target if not _is_external(t)]
        if not kinds:
            raise InvalidOption("a list without a device target", 'one with "cuda" or "llvm"')
        return kinds[0]
    kind = _kind(target)
    if kind not in ("cuda", "llvm"):
        raise InvalidOption(f"target {str(target)!r}", '"cuda" or "llvm"')
    if kind == "llvm":
        _check_machine(target)
    return kind


def _check_machine(target: Any) -> None:
    """Check that a target for the CPU means this machine's.

    Raises:
        InvalidOption: An `-mtriple` of another one.
    """
    attrs = target if isinstance(target, Mapping) else getattr(target, "attrs", {})
    found = re.search(r"-mtriple[= ](\S+)", target) if isinstance(target, str) else None
    triple = found.group(1) if found else str(attrs.get("mtriple", "") or "")
    here = platform.machine().lower()
    there = triple.partition("-")[0].lower()
    same = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}
    if triple and same.get(there, there) != same.get(here, here):
        raise InvalidOption(
            f"-mtriple={triple}", f"code for this machine ({here})", "Build on the machine itself"
        )


def _kind(target: Any) -> str:
    if isinstance(target, str):
        word = target.split()[0] if target.split() else ""
        # A tag such as nvidia/nvidia-h100; TVM 0.27 no longer parses `-libs=...`.
        return "cuda" if word.startswith("nvidia/") else word
    if isinstance(target, dict):
        return str(target["kind"])
    return str(getattr(getattr(target, "kind", None), "name", target))


def _is_external(target: Any) -> bool:
    return _kind(target) in ("cutlass", "cudnn", "cublas", "tensorrt")


def warn_about_passes(stacklevel: int) -> None:
    """Warn about settings of the current PassContext that have no effect here."""
    context = PassContext.current()
    settings = [f"{f}={getattr(context, f)}" for f in ("disabled_pass", "required_pass")]
    found = [s for s in settings if not s.endswith("=[]")]
    found += [key for key in context.config if key.startswith("relay.")]
    if found:
        warnings.warn(
            f"{', '.join(found)}: relay.build does not run Relay's own passes, no effect",
            stacklevel=stacklevel,
        )


def precision_of(mod: IRModule) -> str:
    """Return the dtype that the module computes its convolutions and GEMMs in."""
    found: set[str] = set()
    for name in mod:
        for node in post_order(mod[name]):
            if not (isinstance(node, ast.Call) and isinstance(node.op, ast.Op)):
                continue
            if node.op.name.startswith(("nn.conv", "nn.dense", "nn.matmul", "nn.batch_matmul")):
                found.add(getattr(node.args[0].checked_type, "dtype", ""))
    for dtype in HALF_DTYPES:
        if found and found <= {dtype}:
            return dtype
    return "float32"


def check_graph(mod: IRModule) -> None:
    """Check that a graph executor can run the module.

    Raises:
        DynamicShape: A parameter with an unknown size.
        UnsupportedOp: Control flow.
    """
    main = mod["main"]
    remedy = "relay.vm.compile takes such modules"
    for var in main.params:
        if not _is_static(var.checked_type):
            raise DynamicShape(f"%{var.name_hint} of type {var.checked_type}", "sizes", remedy)
    for name in mod:
        for node in post_order(mod[name]):
            if isinstance(node, ast.If):
                raise UnsupportedOp("an if in a graph", "straight-line code", remedy)


def static_graph(mod: IRModule, params: Mapping[str, Any] | None) -> IRModule:
    """Return the module with sizes that are computed from constants as numbers.

    Args:
        mod: A module with inferred types.
        params: Values by name, on which sizes may depend.

    Raises:
        DynamicShape: A size that is known at run time only.
        UnsupportedOp: Control flow, or a size that is computed from inputs.
    """
    calls = (n for name in mod for n in post_order(mod[name]) if isinstance(n, ast.Call))
    if any(n.checked_type_ is not None and not _is_static(n.checked_type_) for n in calls):
        main = mod["main"]
        bound = bound_params(main, params or {})
        mod = mod.shallow_copy()
        mod["main"] = bind(main, {v: ast.Constant(a) for v, a in bound.items()})
        mod = with_static_shapes(infer_module(mod))
    check_graph(mod)
    return mod


def _is_static(type_: ty.Type) -> bool:
    if isinstance(type_, ty.TupleType):
        return all(map(_is_static, type_.fields))
    return not isinstance(type_, ty.TensorType) or type_.is_static
