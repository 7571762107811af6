"""Forward, backward and update as one function.

The step of a loss function ``main(x, ..., w, ...) -> (loss, ...)`` is
``main(x, ..., learning_rate, *state) -> (loss, ..., *new state)``, where the state is every
trained parameter, what the optimizer keeps for it, and other values that are carried from step to
step (moving statistics). It is an ordinary Relax module that ``convoy.build`` compiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from ..errors import InvalidOption
from ..graph.expr import dtype_of, shape_of
from ..graph.function import main_function
from ..graph.state import STATE
from ..ir.dtypes import FLOAT_DTYPES
from ..normalize.activations import RecognizeActivations
from ..normalize.recurrent import UnrollRecurrent
from .loss import adjoint, draws_numbers
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
    mod = UnrollRecurrent()(mod)
    mod = RecognizeActivations()(mod)  # each has one gradient, whatever its parts have
    gv, func = main_function(mod)
    loss = _Loss.of(func, trainable, updates or {})
    groups = _groups(trainable, optimizer or Sgd())
    update = Update(groups, loss.weights, scaling or Scaling(), draws_numbers(func))
    backward = adjoint(mod, gv, trainable, update.loss_scale(), update.shared.get(RANDOM))
    step = _assembled(mod, gv, loss, backward, update)
    names = StepNames.of([param.name for param in step["main"].params], groups)
    return TrainStep(**vars(names), module=step)


@dataclass(frozen=True)
class _Loss:
    """Parameters of a loss function in a step, in its order, and its results.

    Attributes:
        params: New variables of all of them, by name.
        trainable: Names of those that the optimizer updates.
        updates: For others, the index of the result that replaces them in the next step.
        results: Number of results.
    """

    params: Mapping[str, relax.Var]
    trainable: Sequence[str]
    updates: Mapping[str, int]
    results: int

    @classmethod
    def of(
        cls, func: relax.Function, trainable: Sequence[str], updates: Mapping[str, int]
    ) -> _Loss:
        """Check the names and that the first result is a scalar."""
        _check_names({p.name: p for p in func.params}, trainable, updates)
        several = isinstance(func.ret_ty, tvm.ir.TupleType)
        results = list(func.ret_ty.fields) if several else [func.ret_ty]
        if not isinstance(results[0], relax.TensorType) or results[0].ndim != 0:
            raise InvalidOption(f"a loss of type {results[0]}", "a scalar as the first result")
        params = {p.name: relax.Var(p.name, p.ty) for p in func.params}
        return cls(params, trainable, updates, len(results))

    @property
    def weights(self) -> dict[str, relax.Var]:
        return {name: self.params[name] for name in self.trainable}

    @property
    def carried(self) -> list[str]:
        return [n for n in self.params if n in self.updates and n not in self.trainable]

    @property
    def inputs(self) -> list[relax.Var]:
        kept = {*self.trainable, *self.carried}
        return [var for name, var in self.params.items() if name not in kept]


def _assembled(
    mod: tvm.IRModule,
    gv: tvm.ir.GlobalVar,
    loss: _Loss,
    backward: relax.Function,
    update: Update,
) -> tvm.IRModule:
    """Return a module whose ``main`` calls the backward function and updates the state."""
    slots = [var for found in update.slots.values() for var in found]
    moved = [*update.shared.values(), *(loss.params[name] for name in loss.carried)]
    state = [*loss.weights.values(), *slots, *moved]
    scale, random = update.loss_scale(), update.shared.get(RANDOM)
    further = [var for var in (scale, random) if isinstance(var, relax.Var)]
    builder = relax.BlockBuilder(mod=tvm.IRModule(mod.functions, attrs=mod.attrs))
    del builder.get()[gv]
    called = builder.add_func(backward, "backward")
    with builder.function("main", [*loss.inputs, update.rate, *state]):
        with builder.dataflow():
            both = builder.emit(relax.Call(called, [*loss.params.values(), *further]))
            outs = builder.emit(relax.TupleGetItem(both, 0))
            grads = builder.emit(relax.TupleGetItem(both, 1))
            out = [relax.TupleGetItem(outs, 1 + i) for i in range(loss.results)]
            gradients = {
                name: builder.emit(relax.TupleGetItem(grads, i))
                for i, name in enumerate(loss.trainable)
            }
            new = update.emit(builder, gradients)
            kept = [builder.emit(out[loss.updates[name]]) for name in loss.carried]
            shown = [o for i, o in enumerate(out) if i not in loss.updates.values()]
            result = [builder.emit_output(e) for e in [*shown, *new, *kept]]
        builder.emit_func_output(relax.Tuple(result))
    return _with_state(builder.get(), len(state))


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
