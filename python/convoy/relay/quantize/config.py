"""The settings of `relay.quantize`."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from convoy.errors import InvalidOption
from convoy.relay.source import nearest


class _Stack(threading.local):
    """The settings that are entered, innermost last, in each thread."""

    def __init__(self) -> None:
        self.entered: list[QConfig] = []


_stack = _Stack()


@dataclass(frozen=True)
class QConfig:
    """Settings for all quantization inside `with QConfig(...)`.

    Attributes:
        nbit_input: Bits of activations, up to 8.
        nbit_weight: Bits of weights, up to 8.
        nbit_activation: Accepted; sums have 32 bits.
        dtype_input: The dtype of activations.
        dtype_weight: The dtype of weights.
        dtype_activation: Accepted; sums are int32, which "int8" and "int16" would overflow.
        calibrate_mode: How to find the scales of activations: "global_scale" takes one for all,
            "kl_divergence" and "percentile" run the network on a dataset.
        global_scale: The largest absolute value that activations are taken to have.
        weight_scale: "max", or "power2" for the next power of two above the largest weight.
        skip_dense_layer: Leave dense layers in floating point.
        skip_conv_layers: The numbers of convolutions to leave in floating point, from 0.
        do_simulation: Round to integers, and compute in floating point.
        round_for_shift: Accepted; shifts always round.
        debug_enabled_ops: The names of operators to quantize; None is all.
        rounding: "UPWARD" or "TONEAREST", for halves.
        calibrate_chunk_by: How many tensors to keep at a time while calibrating; -1 is all.
        partition_conversions: "enabled" splits the network into quantize_inputs, quantized_main
            and dequantize_outputs, "fully_integral" also refuses floating point in quantized_main.
    """

    nbit_input: int = 8
    nbit_weight: int = 8
    nbit_activation: int = 32
    dtype_input: str = "int8"
    dtype_weight: str = "int8"
    dtype_activation: str = "int32"
    calibrate_mode: Literal["global_scale", "kl_divergence", "percentile"] = "global_scale"
    global_scale: float = 8.0
    weight_scale: Literal["power2", "max"] = "power2"
    skip_dense_layer: bool = True
    skip_conv_layers: Sequence[int] | None = (0,)
    do_simulation: bool = False
    round_for_shift: bool = True
    debug_enabled_ops: Sequence[str] | None = None
    rounding: Literal["UPWARD", "TONEAREST"] = "UPWARD"
    calibrate_chunk_by: int = -1
    partition_conversions: Literal["disabled", "enabled", "fully_integral"] = "disabled"

    def __post_init__(self) -> None:
        choices = {
            "calibrate_mode": ("global_scale", "kl_divergence", "percentile"),
            "weight_scale": ("power2", "max"),
            "rounding": ("UPWARD", "TONEAREST"),
            "dtype_input": ("int8",),
            "dtype_weight": ("int8",),
            "dtype_activation": ("int8", "int16", "int32"),
            "partition_conversions": ("disabled", "enabled", "fully_integral"),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise InvalidOption(
                    f"{name}='{getattr(self, name)}'", " or ".join(map(repr, known))
                )
        for name in ("nbit_input", "nbit_weight"):
            if not 2 <= getattr(self, name) <= 8:
                raise InvalidOption(f"{name}={getattr(self, name)}", "2 to 8")
        if self.global_scale <= 0:
            raise InvalidOption(f"global_scale={self.global_scale}", "a number over zero")

    def __enter__(self) -> QConfig:
        _stack.entered.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _stack.entered.pop()


def qconfig(**settings: Any) -> QConfig:
    """Make settings; unknown names are ignored with a warning."""
    known = [field.name for field in fields(QConfig)]
    for name in settings:
        if name not in known:
            warnings.warn(f"qconfig has no {name}. {nearest(name, known)}", stacklevel=2)
    return QConfig(**{name: value for name, value in settings.items() if name in known})


def current_qconfig() -> QConfig:
    """Return the innermost settings, or the defaults."""
    return _stack.entered[-1] if _stack.entered else QConfig()
