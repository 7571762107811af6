"""Parts of a program as modules, and the values at the borders of its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.errors import InvalidOption
from convoy.relay import ast, transform
from convoy.relay.ast import Expr, Function, GlobalVar
from convoy.relay.executor import create_executor
from convoy.relay.hashing import structural_hash
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.visit import free_vars, post_order


def extract_intermdeiate_expr(mod: IRModule, expr_id: int) -> IRModule:
    """Return a module that computes one value of `main`.

    Args:
        mod: The module.
        expr_id: The number of a call, tuple or tuple field, counted in order of evaluation from 0.

    Raises:
        InvalidOption: No value of this number.
    """
    values = [
        node
        for node in post_order(mod["main"].body)
        if isinstance(node, (ast.Call, ast.Tuple, ast.TupleGetItem))
    ]
    if not 0 <= expr_id < len(values):
        raise InvalidOption(f"expr_id={expr_id}", f"a number from 0 to {len(values) - 1}")
    found = values[expr_id]
    return IRModule.from_expr(Function(free_vars(found), found))


def extract_fused_functions(mod: IRModule) -> dict[GlobalVar, Function]:
    """Return the functions that FuseOps makes of `main`, each kind once, by names of their hash."""
    fused = transform.FuseOps(3)(transform.SimplifyInference()(infer_module(mod)))
    found: dict[int, Function] = {}
    for node in post_order(fused["main"]):
        if isinstance(node, Function) and node.attrs and node.attrs.get("Primitive"):
            found.setdefault(structural_hash(node), node)
    return {GlobalVar(str(number)): function for number, function in found.items()}


def search_fc_transpose(expr: Expr) -> list[str]:
    """Return the names of weights that are transposed for a dense layer alone."""
    found: dict[str, None] = {}
    for node in post_order(expr):
        if not (isinstance(node, ast.Call) and node.op is ast.op("nn.dense")):
            continue
        weight = node.args[1]
        if isinstance(weight, ast.Call) and weight.op is ast.op("transpose"):
            value = weight.args[0]
            if isinstance(value, ast.Var):
                found[value.name_hint] = None
    return list(found)


def get_calibration_data(mod: IRModule, data: Mapping[str, Any]) -> dict[GlobalVar, dict[str, Any]]:
    """Run a partitioned module and return what goes into its partitions and comes out.

    Args:
        mod: A module whose `main` calls functions with a `Compiler` attribute, each once.
        data: Values for the parameters of `main` by name.

    Returns:
        For each such function, a dict with lists of arrays, "inputs" and "outputs".
    """
    infer_module(mod)
    main = mod["main"]
    calls = [
        node
        for node in post_order(main.body)
        if isinstance(node, ast.Call)
        and isinstance(node.op, GlobalVar)
        and "Compiler" in (mod[node.op].attrs or {})
    ]
    values: list[Expr] = []
    spans: list[tuple[GlobalVar, int, int]] = []
    for call in calls:
        assert isinstance(call.op, GlobalVar)
        body = mod[call.op].body
        outputs: list[Expr] = [call]
        if isinstance(body, ast.Tuple):
            outputs = [ast.TupleGetItem(call, i) for i in range(len(body.fields))]
        spans.append((mod.get_global_var(call.op.name_hint), len(call.args), len(outputs)))
        values += [*call.args, *outputs]
    probe = mod.shallow_copy()
    probe["main"] = Function(main.params, ast.Tuple(values))
    arguments = [data[p.name_hint] for p in main.params]
    results = list(create_executor("graph", probe).evaluate()(*arguments)) if values else []
    found: dict[GlobalVar, dict[str, Any]] = {}
    for name, inputs, outputs_ in spans:
        taken, results = results[: inputs + outputs_], results[inputs + outputs_ :]
        found[name] = {"inputs": taken[:inputs], "outputs": taken[inputs:]}
    return found
