"""Build networks to train layer by layer: NHWC activations, OHWI filters, initial parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from ..graph.expr import shape_of
from .optimizers import Group, Optimizer
from .step import TrainStep, train_step
from .update import Scaling

INPUT, LABELS = "x", "labels"


@dataclass(frozen=True)
class LossModule:
    """``main(x, labels, parameters...) -> (loss, logits, new moving statistics...)``.

    ``trainable`` are names of parameters, ``updates`` map other parameters to the results that
    replace them, ``initial`` are values for all of them, as PyTorch initializes them.
    """

    module: tvm.IRModule
    trainable: tuple[str, ...]
    updates: Mapping[str, int]
    initial: Mapping[str, np.ndarray]

    def step(
        self, optimizer: Optimizer | Sequence[Group] | None = None, scaling: Scaling | None = None
    ) -> TrainStep:
        """The module that takes one step; arguments as those of :func:`train_step`."""
        return train_step(self.module, self.trainable, optimizer, self.updates, scaling)


class Network:
    """Builds a classifier: layers take and give Relax variables, ``finish`` adds the loss.

    ``x`` (batch, height, width, channels) is the input. Parameters are float32: the dtype policy
    of ``convoy.build`` says in what convolutions compute.
    """

    def __init__(self, batch: int, height: int, width: int, channels: int, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._params: list[relax.Var] = []
        self._trainable: list[str] = []
        self._moved: dict[str, relax.Var] = {}
        self._initial: dict[str, np.ndarray] = {}
        self._builder = relax.BlockBuilder()
        self.x = relax.Var(INPUT, relax.TensorType((batch, height, width, channels), "float32"))
        self._labels = relax.Var(LABELS, relax.TensorType((batch,), "int32"))
        self._function = self._builder.function("main")
        self._function.__enter__()
        self._block = self._builder.dataflow()
        self._block.__enter__()

    def conv(
        self, x: relax.Var, channels: int, kernel: int, stride: int = 1, padding: int | None = None,
        dilation: int = 1, groups: int = 1, bias: bool = False, name: str = "",
    ) -> relax.Var:  # fmt: skip
        """Return a convolution; padding is by default half of the kernel's extent."""
        name = name or f"conv{len(self._params)}"
        shape = (channels, kernel, kernel, shape_of(x)[-1] // groups)
        fan_out = channels * kernel * kernel // groups
        weights = self._rng.standard_normal(shape, np.float32) * math.sqrt(2 / fan_out)
        w = self._param(f"{name}_weight", weights.astype(np.float32))
        padding = dilation * (kernel - 1) // 2 if padding is None else padding
        y = self._emit(
            op.nn.conv2d(
                x, w, strides=stride, padding=padding, dilation=dilation, groups=groups,
                data_layout="NHWC", kernel_layout="OHWI",
            )
        )  # fmt: skip
        if not bias:
            return y
        return self._emit(op.add(y, self._param(f"{name}_bias", np.zeros(channels, np.float32))))

    def batch_norm(self, x: relax.Var, gamma: float = 1.0, name: str = "") -> relax.Var:
        """Batch norm with batch statistics, over the last axis."""
        name, channels = name or f"norm{len(self._params)}", shape_of(x)[-1]
        ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        vectors = [
            self._param(f"{name}_gamma", ones * np.float32(gamma)),
            self._param(f"{name}_beta", zeros),
            self._param(f"{name}_mean", zeros, trainable=False),
            self._param(f"{name}_var", ones, trainable=False),
        ]
        both = self._emit(op.nn.batch_norm(x, *vectors, axis=len(shape_of(x)) - 1, training=True))
        for i, var in enumerate(vectors[2:]):
            self._moved[var.name] = self._emit(relax.TupleGetItem(both, 1 + i))
        return self._emit(relax.TupleGetItem(both, 0))

    def relu(self, x: relax.Var) -> relax.Var:
        return self._emit(op.nn.relu(x))

    def add(self, x: relax.Var, y: relax.Var) -> relax.Var:
        return self._emit(op.add(x, y))

    def max_pool(self, x: relax.Var, size: int, stride: int, padding: int = 0) -> relax.Var:
        return self._emit(
            op.nn.max_pool2d(x, (size, size), (stride, stride), (padding, padding), layout="NHWC")
        )

    def mean(self, x: relax.Var) -> relax.Var:
        """Mean of each channel: (n, h, w, c) to (n, c)."""
        return self._emit(op.mean(x, [1, 2]))

    def dense(self, x: relax.Var, units: int, name: str = "") -> relax.Var:
        """(n, c) to (n, units), with a bias; the weights are (units, c)."""
        name, inputs = name or f"dense{len(self._params)}", shape_of(x)[-1]
        bound = 1 / math.sqrt(inputs)
        weights = self._rng.uniform(-bound, bound, (units, inputs)).astype(np.float32)
        w = self._param(f"{name}_weight", weights)
        bias = self._rng.uniform(-bound, bound, units).astype(np.float32)
        y = self._emit(op.matmul(x, self._emit(op.permute_dims(w, [1, 0]))))
        return self._emit(op.add(y, self._param(f"{name}_bias", bias)))

    def finish(self, logits: relax.Var) -> LossModule:
        """Make the mean cross entropy of logits (n, classes) with the labels (n,) the loss."""
        scores = self._emit(op.nn.log_softmax(logits, axis=-1))
        loss = self._builder.emit_output(op.nn.nll_loss(scores, self._labels))
        results = [loss, self._builder.emit_output(logits)]
        updates = {}
        for name, var in self._moved.items():
            updates[name] = len(results)
            results.append(self._builder.emit_output(var))
        self._block.__exit__(None, None, None)
        params = [self.x, self._labels, *self._params]
        self._builder.emit_func_output(relax.Tuple(results), params=params)
        self._function.__exit__(None, None, None)
        return LossModule(self._builder.get(), tuple(self._trainable), updates, dict(self._initial))

    def _emit(self, expr: relax.Expr) -> relax.Var:
        return self._builder.emit(expr)

    def _param(self, name: str, value: np.ndarray, trainable: bool = True) -> relax.Var:
        var = relax.Var(name, relax.TensorType(value.shape, "float32"))
        self._params.append(var)
        self._initial[name] = value
        if trainable:
            self._trainable.append(name)
        return var
