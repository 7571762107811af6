"""Forward, backward and update as one function.

The step of a loss function ``main(x, ..., w, ...) -> (loss, ...)`` is
``main(x, ..., learning_rate, *state) -> (loss, ..., *new state)``, where the state is every
trained parameter, its velocity, and other values that are carried from step to step (moving
statistics). It is an ordinary Relax module that ``convoy.build`` compiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from ..errors import InvalidOption, UnsupportedOp
from ..graph.expr import FLOAT_DTYPES, dtype_of, numpy_dtype, shape_of
from ..graph.rewriter import main_function
from ..graph.state import STATE
from ..ops.elementwise import sgd_update

LEARNING_RATE = "learning_rate"
_VELOCITY = "_velocity"


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent as in PyTorch; the learning rate is an input of the step.

    ``weight_decay`` applies to tensors of two or more dimensions (weights, not biases and norms).
    """

    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False


@dataclass(frozen=True)
class StepNames:
    """Names of a training step's inputs and state, in the order of its parameters.

    The last ``len(state)`` parameters of ``main`` are the state, and its last ``len(state)``
    results their new values; ``trainable`` are the parameters among them.
    """

    inputs: tuple[str, ...]
    state: tuple[str, ...]
    trainable: tuple[str, ...]


@dataclass(frozen=True)
class TrainStep(StepNames):
    """A training step: ``module`` and the names of its inputs, state and results."""

    module: tvm.IRModule

    def initial_state(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return the state in order, as :func:`initial_state` makes it."""
        params = {p.name: p for p in self.module["main"].params}
        return initial_state(
            [(name, shape_of(params[name]), dtype_of(params[name])) for name in self.state], values
        )


def initial_state(
    state: Iterable[tuple[str, tuple[int, ...], str]], values: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """Return an array for each (name, shape, dtype): ``values`` by name, zeros for velocities.

    Raises InvalidOption for a missing value or a wrong shape.
    """
    arrays = []
    for name, shape, dtype in state:
        if name not in values and name.endswith(_VELOCITY):
            arrays.append(np.zeros(shape, numpy_dtype(dtype)))
            continue
        if name not in values or tuple(values[name].shape) != shape:
            got = f"shape {tuple(values[name].shape)}" if name in values else "no value"
            raise InvalidOption(f"{got} for {name}", f"an array of shape {shape}")
        arrays.append(np.ascontiguousarray(values[name].astype(numpy_dtype(dtype), copy=False)))
    return arrays


def train_step(
    mod: tvm.IRModule,
    trainable: Sequence[str],
    optimizer: Sgd | None = None,
    updates: Mapping[str, int] | None = None,
) -> TrainStep:
    """Differentiate the first result of ``main`` (a scalar loss) and append the update.

    Args:
        trainable: Names of parameters of ``main``.
        optimizer: Plain gradient descent by default.
        updates: Maps other parameters to the index of the result that replaces them in the next
            step: the moving statistics of a batch norm. Those results are not among the step's.

    Raises:
        InvalidOption: An unknown parameter name, or a loss that is not a scalar.
        UnsupportedOp: An operator that cannot be differentiated.
    """
    optimizer, updates = optimizer or Sgd(), dict(updates or {})
    gv, func = main_function(mod)
    params = {p.name: p for p in func.params}
    _check_names(params, trainable, updates)
    several = isinstance(func.ret_ty, tvm.ir.TupleType)
    results = list(func.ret_ty.fields) if several else [func.ret_ty]
    if not isinstance(results[0], relax.TensorType) or results[0].ndim != 0:
        raise InvalidOption(f"a loss of type {results[0]}", "a scalar as the first result")

    carried = [name for name in params if name in updates and name not in trainable]
    fed = [name for name in params if name not in trainable and name not in carried]
    own = {name: relax.Var(name, param.ty) for name, param in params.items()}
    weights = [own[name] for name in trainable]
    velocities = []
    if optimizer.momentum:
        velocities = [relax.Var(w.name + _VELOCITY, w.ty) for w in weights]
    rate = relax.Var(LEARNING_RATE, relax.TensorType((), "float32"))
    inputs = [*(own[name] for name in fed), rate]
    state = [*weights, *velocities, *(own[name] for name in carried)]

    builder = relax.BlockBuilder(mod=tvm.IRModule(mod.functions, attrs=mod.attrs))
    del builder.get()[gv]
    adjoint = _adjoint(mod, gv, func, [params[name] for name in trainable], several)
    backward = builder.add_func(adjoint, "backward")
    with builder.function("main", [*inputs, *state]):
        with builder.dataflow():
            both = builder.emit(relax.Call(backward, list(own.values())))
            outs = builder.emit(relax.TupleGetItem(both, 0))
            grads = builder.emit(relax.TupleGetItem(both, 1))
            out = [relax.TupleGetItem(outs, i) if several else outs for i in range(len(results))]
            new = [(_gradient(builder, grads, i), w) for i, w in enumerate(weights)]
            updated = _update(builder, optimizer, new, velocities, rate)
            kept = [builder.emit(out[updates[name]]) for name in carried]
            shown = [o for i, o in enumerate(out) if i not in updates.values()]
            result = [builder.emit_output(e) for e in [*shown, *updated, *kept]]
        builder.emit_func_output(relax.Tuple(result))
    return TrainStep(
        tuple(v.name for v in inputs),
        tuple(v.name for v in state),
        tuple(trainable),
        _with_state(builder.get(), len(state)),
    )


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
    wanted: list[relax.Var],
    several: bool,
) -> relax.Function:
    """The function with gradients, as a private one."""
    try:
        differentiated = relax.transform.Gradient(gv.name_hint, require_grads=wanted)(mod)
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


def _gradient(builder: relax.BlockBuilder, grads: relax.Var, index: int) -> relax.Expr:
    return builder.emit(relax.TupleGetItem(grads, index))


def _update(
    builder: relax.BlockBuilder,
    optimizer: Sgd,
    gradients: list[tuple[relax.Expr, relax.Var]],
    velocities: list[relax.Var],
    rate: relax.Var,
) -> list[relax.Expr]:
    """New weights, then new velocities."""
    new_weights: list[relax.Var] = []
    new_velocities: list[relax.Var] = []
    for i, (gradient, w) in enumerate(gradients):
        decay = optimizer.weight_decay if len(shape_of(w)) > 1 else 0.0
        velocity = velocities[i] if velocities else w
        both = builder.emit(
            sgd_update(w, velocity, gradient, rate, optimizer.momentum, decay, optimizer.nesterov)
        )
        new_weights.append(builder.emit(relax.TupleGetItem(both, 0)))
        if velocities:
            new_velocities.append(builder.emit(relax.TupleGetItem(both, 1)))
    return new_weights + new_velocities
