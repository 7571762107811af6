"""Changing the shapes of a network's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convoy.errors import DynamicShape, InvalidOption, RelayTypeError
from convoy.ir.sizes import check_batch
from convoy.relay.ast import Expr, Function, Var
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.types import Dim, TensorType
from convoy.relay.visit import rewrite


def with_batch(mod: IRModule, batch: int) -> IRModule:
    """Replace the first dimension of the first parameter by `batch`, and infer types again.

    Other parameters of `main` (weights) keep their types, even where their first dimension equals
    the old batch.

    Args:
        mod: A module whose first parameter is the network's input.
        batch: The new batch size.

    Raises:
        InvalidOption: A batch below 1.
        RelayTypeError: A network whose shapes depend on the batch elsewhere, such as a reshape to
            fixed sizes.
        DynamicShape: A first parameter without a static shape.
    """
    check_batch(batch)
    main = mod["main"]
    old = main.params[0] if main.params else None
    if old is None or not isinstance(old.checked_type, TensorType):
        raise RelayTypeError("a main function without a tensor as its first parameter")
    shape = old.checked_type.shape
    if not shape or not isinstance(shape[0], int):
        raise DynamicShape(f"%{old.name_hint} of shape {shape}", "a static shape with a batch")
    return with_shapes(mod, {old.name_hint: (batch, *shape[1:])})


def with_shapes(mod: IRModule, shapes: Mapping[str, Sequence[Dim]]) -> IRModule:
    """Give parameters of `main` other shapes, by name, and infer types again.

    Raises:
        InvalidOption: A parameter that there is not, or one that is no tensor.
        RelayTypeError: A network that does not take the shapes.
    """
    main = mod["main"]
    known = {var.name_hint: var for var in main.params}
    changed_vars = {}
    for name, shape in shapes.items():
        old = known.get(name)
        if old is None or not isinstance(old.checked_type, TensorType):
            raise InvalidOption(
                f"a shape for input {name!r}", f"one of {', '.join(map(repr, known))}"
            )
        changed_vars[old] = Var(name, TensorType(tuple(shape), old.checked_type.dtype))

    def replace(node: Expr) -> Expr | None:
        return changed_vars.get(node) if isinstance(node, Var) else None

    params = tuple(changed_vars.get(var, var) for var in main.params)
    changed = Function(params, rewrite(main.body, replace), attrs=main.attrs)
    functions = {g: f for g, f in mod.functions.items() if g.name_hint != "main"}
    return infer_module(IRModule({**functions, "main": changed}, mod.type_definitions, mod.attrs))
