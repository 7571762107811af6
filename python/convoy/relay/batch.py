"""Changing the batch size of a network."""

from __future__ import annotations

from convoy.errors import DynamicShape, RelayTypeError
from convoy.relay.ast import Expr, Function, Var
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.types import TensorType
from convoy.relay.visit import rewrite


def with_batch(mod: IRModule, batch: int) -> IRModule:
    """Replace the first dimension of the first parameter by `batch`, and infer types again.

    Other parameters of `main` (weights) keep their types, even where their first dimension equals
    the old batch.

    Args:
        mod: A module whose first parameter is the network's input.
        batch: The new batch size.

    Raises:
        RelayTypeError: A network whose shapes depend on the batch elsewhere, such as a reshape to
            fixed sizes.
        DynamicShape: A first parameter without a static shape.
    """
    main = mod["main"]
    old = main.params[0] if main.params else None
    if old is None or not isinstance(old.checked_type, TensorType):
        raise RelayTypeError("a main function without a tensor as its first parameter")
    shape = old.checked_type.shape
    if not shape or not isinstance(shape[0], int):
        raise DynamicShape(f"%{old.name_hint} of shape {shape}", "a static shape with a batch")
    new = Var(old.name_hint, TensorType((batch, *shape[1:]), old.checked_type.dtype))

    def replace(node: Expr) -> Expr | None:
        return new if node is old else None

    body = rewrite(main.body, replace)
    changed = Function((new, *main.params[1:]), body, attrs=main.attrs)
    functions = {g: f for g, f in mod.functions.items() if g.name_hint != "main"}
    return infer_module(IRModule({**functions, "main": changed}, attrs=mod.attrs))
