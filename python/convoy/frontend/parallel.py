"""Combine independent networks into one module that runs them side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InvalidOption

if TYPE_CHECKING:
    import tvm
    from tvm import relax


def parallel(
    *modules: Any,
    params: Sequence[Mapping[str, Any] | None] | None = None,
    shared: bool | Sequence[str] = False,
    names: Sequence[str] | None = None,
) -> tvm.IRModule:
    """One Relax module of several, for :func:`convoy.build`, which puts them on streams of their
    own where that pays.

    Args:
        modules: Relax modules with an entry function, or modules or functions of convoy.relay.
        params: For each module its parameters by name, which become constants; None for none.
        shared: Names of inputs that the modules have in common, True for all of equal name. They
            keep their name and must agree in shape and dtype. Every other input is called
            ``<name of the module>_<its own name>``.
        names: Names of the modules; "m0", "m1", ... by default.

    Returns:
        A Relax module whose outputs are those of the modules, flattened, one module after another.

    Raises:
        InvalidOption: No module, names that are not distinct, a shared name that no module has, or
            shared inputs that differ. The conversion from Relay raises errors of its own.
    """
    from tvm import relax

    from ..graph.bind import bind_params
    from ..graph.function import main_function

    names = list(names) if names is not None else [f"m{i}" for i in range(len(modules))]
    given = list(params) if params is not None else [None] * len(modules)
    _check_counts(modules, names, given)
    bound = [bind_params(_to_relax(m), p) for m, p in zip(modules, given, strict=True)]
    functions = [main_function(mod)[1] for mod in bound]
    common = _common_names(functions, shared)
    inputs: dict[str, relax.Var] = {}
    arguments: list[list[relax.Var]] = []
    for name, func in zip(names, functions, strict=True):
        arguments.append([])
        for param in func.params:
            key = param.name if param.name in common else f"{name}_{param.name}"
            var = inputs.setdefault(key, relax.Var(key, param.ty))
            if str(var.ty) != str(param.ty):
                raise InvalidOption(
                    f"shared input {key!r} of type {param.ty} in {name}", f"{var.ty} in all modules"
                )
            arguments[-1].append(var)
    builder = relax.BlockBuilder()
    callees = [_add(builder, mod, name) for name, mod in zip(names, bound, strict=True)]
    with builder.function("main", list(inputs.values())):
        results = []
        for callee, args in zip(callees, arguments, strict=True):
            results.extend(_flatten(builder, builder.emit(relax.Call(callee, args))))
        builder.emit_func_output(relax.Tuple(results))
    return builder.get()


def _to_relax(module: Any) -> tvm.IRModule:
    import tvm

    if isinstance(module, tvm.IRModule):
        return module
    from ..relay.convert import to_relax
    from ..relay.module import as_module

    return to_relax(as_module(module), None)


def _check_counts(modules: Sequence[Any], names: Sequence[str], params: Sequence[Any]) -> None:
    if not modules:
        raise InvalidOption("no module", "one or more")
    if len(names) != len(modules) or len(set(names)) != len(names):
        raise InvalidOption(f"names {list(names)}", f"{len(modules)} names that differ")
    if len(params) != len(modules):
        raise InvalidOption(f"params for {len(params)} modules", f"for {len(modules)}, or None")


def _common_names(functions: Sequence[relax.Function], shared: bool | Sequence[str]) -> set[str]:
    """Names of the inputs that modules share."""
    per_module = [{param.name for param in func.params} for func in functions]
    everywhere = [name for own in per_module for name in own]
    if shared is True:
        return {name for name in everywhere if everywhere.count(name) > 1}
    wanted = {shared} if isinstance(shared, str) else set(shared or ())
    if missing := wanted - set(everywhere):
        raise InvalidOption(
            f"shared input {sorted(missing)[0]!r}", f"one of {', '.join(sorted(set(everywhere)))}"
        )
    return wanted


def _add(builder: relax.BlockBuilder, mod: tvm.IRModule, name: str) -> tvm.ir.GlobalVar:
    """Add a module's functions to the builder; the entry function becomes private, and functions
    that it calls (kernels of an importer) are renamed."""
    from tvm import relax

    from ..graph.function import main_function
    from ..graph.rename import rename_calls

    entry = main_function(mod)[0].name_hint
    mod = relax.transform.InlinePrivateFunctions()(mod)
    names = {
        gv: builder.add_func(func, f"{name}_{gv.name_hint}")
        for gv, func in mod.functions.items()
        if gv.name_hint != entry
    }
    func = relax.utils.copy_with_new_vars(rename_calls(mod[entry], names))
    return builder.add_func(func.without_attr("global_symbol"), f"{name}_body")


def _flatten(builder: relax.BlockBuilder, value: relax.Expr) -> list[relax.Expr]:
    """List the tensors of a nested tuple, in order."""
    from tvm import relax

    if not isinstance(value.ty, relax.TupleType):
        return [value]
    return [
        tensor
        for i in range(len(value.ty.fields))
        for tensor in _flatten(builder, builder.emit(relax.TupleGetItem(value, i)))
    ]
