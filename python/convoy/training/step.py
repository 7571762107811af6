"""Forward, backward and update as one function.

The step of a loss function ``main(x, ..., w, ...) -> (loss, ...)`` is
``main(x, ..., learning_rate, *state) -> (loss, ..., *new state)``, where the state is every
trained parameter, what the optimizer keeps for it, and other values that are carried from step to
step (moving statistics). It is an ordinary Relax module that ``convoy.build`` compiles.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from ..errors import InvalidOption, UnsupportedOp
from ..graph.expr import FLOAT_DTYPES, dtype_of, shape_of
from ..graph.rewriter import main_function
from ..graph.state import STATE
from ..normalize.activations import RecognizeActivations
from .loss import differentiable, draws_numbers
from .names import RANDOM, StepNames
from .optimizers import Group, Optimizer, Sgd
from .update import Scaling, Update


@dataclass(frozen=True)
class TrainStep(StepNames):
    """A training step as a module, with the names of the inputs and state of its ``main``."""

    module: tvm.IRModule

    def initial_state(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return the state in order: ``values`` by name, initial ones for the optimizer's.

        Raises InvalidOption for a missing value or a wrong shape.
        """
        params = self.module["main"].params
        return self.initial_values(values, [(p.name, shape_of(p), dtype_of(p)) for p in params])


def train_step(
    mod: tvm.IRModule,
    trainable: Sequence[str],
    optimizer: Optimizer | Sequence[Group] | None = None,
    updates: Mapping[str, int] | None = None,
    scaling: Scaling | None = None,
) -> TrainStep:
    """Differentiate the first result of ``main`` (a scalar loss) and append the update.

    Args:
        trainable: Names of parameters of ``main``.
        optimizer: One for all, or groups of parameters; plain gradient descent by default.
        updates: Maps other parameters to the index of the result that replaces them in the next
            step: the moving statistics of a batch norm. Those results are not among the step's.
        scaling: Clipping of gradients and scaling of the loss; neither by default.

    Raises:
        InvalidOption: An unknown parameter name, one that is in no group or in several, or a loss
            that is not a scalar.
        UnsupportedOp: An operator that cannot be differentiated.
    """
    updates = dict(updates or {})
    mod = RecognizeActivations()(mod)  # each has one gradient, whatever its parts have
    gv, func = main_function(mod)
    params = {p.name: p for p in func.params}
    _check_names(params, trainable, updates)
    groups = _groups(trainable, optimizer or Sgd())
    several = isinstance(func.ret_ty, tvm.ir.TupleType)
    results = list(func.ret_ty.fields) if several else [func.ret_ty]
    if not isinstance(results[0], relax.TensorType) or results[0].ndim != 0:
        raise InvalidOption(f"a loss of type {results[0]}", "a scalar as the first result")

    carried = [name for name in params if name in updates and name not in trainable]
    fed = [name for name in params if name not in trainable and name not in carried]
    own = {name: relax.Var(name, param.ty) for name, param in params.items()}
    weights = {name: own[name] for name in trainable}
    update = Update(groups, weights, scaling or Scaling(), draws_numbers(func))
    slots = [var for found in update.slots.values() for var in found]
    moved = [*update.shared.values(), *(own[name] for name in carried)]
    inputs = [*(own[name] for name in fed), update.rate]
    state = [*(own[name] for name in trainable), *slots, *moved]

    scale = update.loss_scale()
    random = update.shared.get(RANDOM)
    further = [var for var in (scale, random) if isinstance(var, relax.Var)]
    builder = relax.BlockBuilder(mod=tvm.IRModule(mod.functions, attrs=mod.attrs))
    del builder.get()[gv]
    loss = differentiable(func, scale, random)
    adjoint = _adjoint(mod, gv, loss, loss.params[: len(own)], trainable)
    backward = builder.add_func(adjoint, "backward")
    with builder.function("main", [*inputs, *state]):
        with builder.dataflow():
            both = builder.emit(relax.Call(backward, [*own.values(), *further]))
            outs = builder.emit(relax.TupleGetItem(both, 0))
            grads = builder.emit(relax.TupleGetItem(both, 1))
            out = [relax.TupleGetItem(outs, 1 + i) for i in range(len(results))]
            gradients = {
                name: builder.emit(relax.TupleGetItem(grads, i)) for i, name in enumerate(trainable)
            }
            new = update.emit(builder, gradients)
            kept = [builder.emit(out[updates[name]]) for name in carried]
            shown = [o for i, o in enumerate(out) if i not in updates.values()]
            result = [builder.emit_output(e) for e in [*shown, *new, *kept]]
        builder.emit_func_output(relax.Tuple(result))
    names = StepNames.of([var.name for var in (*inputs, *state)], groups)
    return TrainStep(**vars(names), module=_with_state(builder.get(), len(state)))


def _groups(trainable: Sequence[str], optimizer: Optimizer | Sequence[Group]) -> Sequence[Group]:
    """Groups in which each parameter is once; raises InvalidOption for others."""
    groups = optimizer if isinstance(optimizer, Sequence) else [Group(optimizer, trainable)]
    named = Counter(name for group in groups for name in group.names)
    for name in trainable:
        if named[name] != 1:
            raise InvalidOption(f"{name} in {named[name]} groups", "each parameter in one")
    return groups


def _with_state(mod: tvm.IRModule, count: int) -> tvm.IRModule:
    """Inline the backward function and mark the last parameters of ``main`` as the state."""
    mod = relax.transform.InlinePrivateFunctions()(mod)
    main = mod["main"].with_attr(STATE, count)
    return tvm.IRModule({**mod.functions, mod.get_global_var("main"): main})


def _check_names(
    params: Mapping[str, relax.Var], trainable: Sequence[str], updates: Mapping[str, int]
) -> None:
    """Raise InvalidOption for an unknown name, or a trained parameter that is not a float."""
    for name in (*trainable, *updates):
        if name not in params:
            raise InvalidOption(f"parameter {name!r}", f"one of {', '.join(params)}")
    if not trainable:
        raise InvalidOption("no trainable parameter", "at least one name")
    for name in trainable:
        if dtype_of(params[name]) not in FLOAT_DTYPES:
            raise InvalidOption(f"{name} of {params[name].ty}", "a parameter of floating point")


def _adjoint(
    mod: tvm.IRModule,
    gv: tvm.ir.GlobalVar,
    func: relax.Function,
    params: Sequence[relax.Var],
    wanted: Sequence[str],
) -> relax.Function:
    """The function with gradients, as a private one."""
    mod = tvm.IRModule({**mod.functions, gv: func}, attrs=mod.attrs)
    by_name = {param.name: param for param in params}
    grads = [by_name[name] for name in wanted]
    try:
        differentiated = relax.transform.Gradient(gv.name_hint, require_grads=grads)(mod)
    except (tvm.error.InternalError, RuntimeError) as err:
        # TVM names the operator without a rule in a failed check; rules that decline raise through
        # its passes, which leave the words only.
        found = re.search(r"FPrimalGradient has not been registered for (\S+)", str(err))
        if found is None and not str(err).startswith("got the gradient"):
            raise
        got = f"no gradient of {found[1]}" if found else str(err)
        raise UnsupportedOp(
            got,
            "operators that can be differentiated" if found else "",
            "tvm.relax.op.base.register_gradient adds a rule." if found else "",
        ) from err
    return differentiated[f"{gv.name_hint}_adjoint"].without_attr("global_symbol")
