"""Splitting a quantized network into conversions and what computes in integers."""

from __future__ import annotations

from convoy.errors import InvalidOption
from convoy.relay.ast import Call, Expr, Function, GlobalVar, Let, Tuple, TupleGetItem, Var
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.transform.rewriting import op_name
from convoy.relay.types import TupleType
from convoy.relay.visit import bind, free_vars, post_order, rewrite

#: Operators that belong to the scaling of results.
_SCALING = {"qnn.dequantize", "add", "subtract", "multiply", "clip", "cast"}


class NotIntegral(InvalidOption, AssertionError):
    """A network that does not compute in integers alone; an AssertionError as in TVM."""


def partition_conversions(mod: IRModule, fully_integral: bool) -> IRModule:
    """Split `main` of a quantized network into three functions, which it calls in turn.

    `quantize_inputs` takes the inputs and rounds those that the network rounds first,
    `quantized_main` computes, and `dequantize_outputs` scales and adds its results. The first two
    return tuples, whose fields the next one takes.

    Args:
        mod: The network, with types.
        fully_integral: Refuse a `quantized_main` that computes in floating point.

    Raises:
        NotIntegral: It does, and is not to.
    """
    main = mod["main"]
    prefix: dict[int, Expr] = {}
    for node in post_order(main.body):
        if not isinstance(node, Call) or op_name(node) != "qnn.quantize":
            continue
        if isinstance(node.args[0], Var):
            prefix[id(node)] = node
    used = free_vars(rewrite(main.body, lambda node: Tuple([]) if id(node) in prefix else None))
    given = [*prefix.values(), *(param for param in main.params if param in used)]
    inner = {id(e): Var(f"quantized_{i}", e.checked_type) for i, e in enumerate(given)}
    ends = _ends(main.body)
    core = rewrite(Tuple(ends), lambda node: inner.get(id(node)))
    outer = {id(e): Var(f"output_{i}", e.checked_type) for i, e in enumerate(ends)}
    inputs = [Var(p.name_hint, p.checked_type) for p in main.params]

    parted = mod.shallow_copy()
    parted["quantize_inputs"] = Function(
        inputs, bind(Tuple(given), dict(zip(main.params, inputs, strict=True)))
    )
    parted["quantized_main"] = Function(list(inner.values()), core)
    parted["dequantize_outputs"] = Function(
        list(outer.values()), rewrite(main.body, lambda node: outer.get(id(node)))
    )
    parted["main"] = Function(main.params, _in_turn(main.params, len(given), len(ends)))
    infer_module(parted)
    if fully_integral:
        _check_integral(parted["quantized_main"])
    return parted


def _ends(body: Expr) -> list[Expr]:
    """Return what the integers of a network end with: what its results are scaled from."""
    found: dict[int, Expr] = {}
    for result in body.fields if isinstance(body, Tuple) else [body]:
        nodes = list(post_order(result, _unscaled))
        names = {"input" if isinstance(n, Var) else op_name(n) for n in nodes} - {""}
        scaled = "qnn.dequantize" in names and names <= _SCALING
        for node in nodes if scaled else ():
            if isinstance(node, Call) and op_name(node) == "qnn.dequantize":
                found[id(node.args[0])] = node.args[0]
        if not scaled:
            found[id(result)] = result
    return list(found.values())


def _unscaled(node: Expr) -> bool:
    return op_name(node) != "qnn.dequantize"


def _in_turn(params: tuple[Var, ...], given: int, outs: int) -> Expr:
    """Return the calls of the three functions."""
    first, second = Var("quantized_inputs"), Var("quantized_outputs")
    fields = [TupleGetItem(first, i) for i in range(given)]
    results = [TupleGetItem(second, i) for i in range(outs)]
    end = Let(
        second,
        Call(GlobalVar("quantized_main"), fields),
        Call(GlobalVar("dequantize_outputs"), results),
    )
    return Let(first, Call(GlobalVar("quantize_inputs"), params), end)


def _check_integral(function: Function) -> None:
    for node in post_order(function):
        if not isinstance(node, (Call, Var)) or node.checked_type_ is None:
            continue
        if "float" in str(node.checked_type) and not isinstance(node.checked_type_, TupleType):
            what = f"%{node.name_hint}" if isinstance(node, Var) else op_name(node)
            raise NotIntegral(
                f"{what} of type {node.checked_type} in a network with partition_conversions="
                "'fully_integral'",
                "operators that compute in integers",
                "'enabled' leaves them in quantized_main",
            )
