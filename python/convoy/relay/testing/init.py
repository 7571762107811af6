"""Random parameters for a network."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from convoy.errors import RelayTypeError
from convoy.relay.ast import Function
from convoy.relay.infer import infer_module
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule
from convoy.relay.types import TensorType


class Initializer:
    """Fill arrays by the end of a parameter's name: weight, bias, gamma, beta, mean, var."""

    def __call__(self, name: str, array: np.ndarray) -> None:
        for suffixes, fill in (
            (("weight",), self.weight),
            (("bias",), self.zeros),
            (("gamma",), self.ones),
            (("beta",), self.zeros),
            (("data_min", "data_max"), self.zeros),
            (("mean",), self.zeros),
            (("var",), self.ones),
        ):
            if name.endswith(suffixes):
                fill(name, array)
                return
        raise RelayTypeError(
            f"parameter '{name}'",
            "a name that ends in weight, bias, gamma, beta, mean or var",
        )

    def zeros(self, name: str, array: np.ndarray) -> None:
        array[:] = 0

    def ones(self, name: str, array: np.ndarray) -> None:
        array[:] = 1

    def weight(self, name: str, array: np.ndarray) -> None:
        raise NotImplementedError


class Xavier(Initializer):
    """Draw weights, uniform or Gaussian, of spread sqrt(magnitude / fan) (Glorot and Bengio)."""

    def __init__(
        self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3
    ) -> None:
        self.rnd_type, self.factor_type, self.magnitude = rnd_type, factor_type, float(magnitude)

    def weight(self, name: str, array: np.ndarray) -> None:
        if array.ndim < 2:
            raise RelayTypeError(f"weight '{name}' of shape {array.shape}", "two axes or more")
        window = float(np.prod(array.shape[2:]))
        fan_in, fan_out = array.shape[1] * window, array.shape[0] * window
        # A depthwise filter sees one channel.
        if "depthwise" in name:
            fan_in = fan_out = window
        fan = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}[self.factor_type]
        scale = np.sqrt(self.magnitude / fan)
        if self.rnd_type == "uniform":
            array[:] = np.random.uniform(-scale, scale, size=array.shape)
        else:
            array[:] = np.random.normal(0, scale, size=array.shape)


class Constant(Initializer):
    """Fill weights with one value."""

    def __init__(self, value: float) -> None:
        self.value = value

    def weight(self, name: str, array: np.ndarray) -> None:
        array[:] = self.value


def create_workload(
    net: Function, initializer: Callable[[str, np.ndarray], None] | None = None, seed: int = 0
) -> tuple[IRModule, dict[str, Any]]:
    """Make a module of a network, and random values for all its parameters but `data`, `data1`, ...

    The values are those of TVM's function of this name for the same seed.
    """
    mod = infer_module(IRModule.from_expr(net))
    initializer = initializer or Xavier()
    np.random.seed(seed)
    params = {}
    for var in mod["main"].params:
        if re.fullmatch(r"data\d*", var.name_hint):
            continue
        type_ = var.checked_type
        assert isinstance(type_, TensorType)
        values = np.zeros(type_.concrete_shape).astype(type_.dtype)
        initializer(var.name_hint, values)
        params[var.name_hint] = tvm.runtime.tensor(values)
    return mod, params
