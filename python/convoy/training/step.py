"""Forward, backward and update as one function.

The step of a loss function ``main(x, ..., w, ...) -> (loss, ...)`` is
``main(x, ..., learning_rate, *state) -> (loss, ..., *new state)``, where the state is every
trained parameter, its velocity, and whatever else the network carries from step to step (moving
statistics). It is an ordinary Relax module: ``convoy.build`` compiles it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
    """Stochastic gradient descent, as in PyTorch; the learning rate is an input of the step.

    ``weight_decay`` counts for tensors of two dimensions and more (weights, not biases or norms).
    """

    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False


@dataclass(frozen=True)
class TrainStep:
    """A training step: ``module`` and the names of its inputs, state and results.

    The last ``len(state)`` parameters of the module's ``main`` are the state, in order, and its
    last ``len(state)`` results their new values; ``trainable`` are the parameters among them.
    """

    module: tvm.IRModule
    inputs: tuple[str, ...]
    state: tuple[str, ...]
    trainable: tuple[str, ...]

    def initial_state(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The state in order: ``values`` by name, zeros for velocities.

        Raises InvalidOption where a value is missing or of another shape.
        """
        params = {p.name: p for p in self.module["main"].params}
        state = []
        for name in self.state:
            shape, dtype = shape_of(params[name]), numpy_dtype(dtype_of(params[name]))
            if name not in values and name.endswith(_VELOCITY):
                state.append(np.zeros(shape, dtype))
                continue
            if name not in values or tuple(values[name].shape) != shape:
                got = f"shape {tuple(values[name].shape)}" if name in values else "no value"
                raise InvalidOption(f"{got} for {name}", f"an array of shape {shape}")
            state.append(np.ascontiguousarray(values[name].astype(dtype, copy=False)))
        return state


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
        InvalidOption: A name that is no parameter, or a loss that is no scalar.
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

    backward = _adjoint(mod, gv, func, [params[name] for name in trainable], several)
    carried = [name for name in params if name in updates and name not in trainable]
    fed = [p for p in func.params if p.name not in trainable and p.name not in carried]
    rate = relax.Var(LEARNING_RATE, relax.TensorType((), "float32"))
    weights = [relax.Var(name, params[name].ty) for name in trainable]
    velocities = []
    if optimizer.momentum:
        velocities = [relax.Var(w.name + _VELOCITY, w.ty) for w in weights]
    kept = [relax.Var(name, params[name].ty) for name in carried]
    inputs = [relax.Var(p.name, p.ty) for p in fed]
    state = [*weights, *velocities, *kept]
    by_name = {v.name: v for v in [*inputs, *state]}

    builder = relax.BlockBuilder(mod=tvm.IRModule(mod.functions, attrs=mod.attrs))
    del builder.get()[gv]
    callee = builder.add_func(backward, "backward")
    with builder.function("main", [*inputs, rate, *state]):
        with builder.dataflow():
            both = builder.emit(relax.Call(callee, [by_name[p.name] for p in func.params]))
            outs = builder.emit(relax.TupleGetItem(both, 0))
            grads = builder.emit(relax.TupleGetItem(both, 1))
            out = [relax.TupleGetItem(outs, i) if several else outs for i in range(len(results))]
            new = [(_gradient(builder, grads, i), w) for i, w in enumerate(weights)]
            updated = _update(builder, optimizer, new, velocities, rate)
            new_kept = [builder.emit(out[updates[name]]) for name in carried]
            shown = [o for i, o in enumerate(out) if i not in updates.values()]
            result = [builder.emit_output(e) for e in [*shown, *updated, *new_kept]]
        builder.emit_func_output(relax.Tuple(result))
    stepped = relax.transform.InlinePrivateFunctions()(builder.get())
    main = stepped["main"].with_attr(STATE, len(state))
    stepped = tvm.IRModule({**stepped.functions, stepped.get_global_var("main"): main})
    return TrainStep(
        stepped,
        (*(v.name for v in inputs), LEARNING_RATE),
        tuple(v.name for v in state),
        tuple(trainable),
    )


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
