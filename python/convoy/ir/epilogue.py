"""Elementwise operations that a kernel applies to its accumulator."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import InvalidWorkload
from . import fields as checks
from .activation import ACTIVATIONS, WITH_ALPHA


@dataclass(frozen=True, order=True)
class Epilogue:
    """Operations that are applied to the accumulator before it is written, in this order.

    ``y = activation(conv + residual + bias)``, or with ``residual_last``
    ``y = activation(conv + bias) + residual``. With ``affine_relu`` a second tensor
    ``y2 = relu(scale * y + shift)`` of the same shape is written in the same pass (the batch
    norm and relu that open the next pre-activation block). With ``affine_only`` as well, ``y`` is
    not written, because nothing else reads it, and ``y2`` is the only result.

    ``bias``, ``scale`` and ``shift`` have shape ``(K,)`` and the output's dtype, ``residual``
    has the output's shape and dtype. ``clip_min`` and ``clip_max`` are used by ``clip`` only,
    ``alpha`` by ``leaky_relu`` (the slope below zero) and ``elu``.
    """

    residual: bool = False
    bias: bool = False
    activation: str = "none"
    clip_min: float = 0.0
    clip_max: float = 0.0
    affine_relu: bool = False
    affine_only: bool = False
    alpha: float = 0.0
    residual_last: bool = False

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise InvalidWorkload(
                f"activation {self.activation!r}", f"one of {', '.join(ACTIVATIONS)}"
            )
        if not (math.isfinite(self.clip_min) and math.isfinite(self.clip_max)):
            raise InvalidWorkload(f"clip to [{self.clip_min}, {self.clip_max}]", "finite bounds")
        if not math.isfinite(self.alpha):
            raise InvalidWorkload(f"alpha = {self.alpha}", "a finite number")
        if self.alpha and self.activation not in WITH_ALPHA:
            raise InvalidWorkload(
                f"alpha = {self.alpha} of {self.activation}", f"0 but for {', '.join(WITH_ALPHA)}"
            )
        if self.residual_last and (not self.residual or self.activation == "none"):
            raise InvalidWorkload(
                f"residual_last with residual = {self.residual}, activation {self.activation!r}",
                "a residual behind an activation",
            )
        if self.affine_only and not self.affine_relu:
            raise InvalidWorkload("affine_only without affine_relu", "both, or neither")

    @property
    def writes_y(self) -> bool:
        """Whether ``y`` is written."""
        return not self.affine_only

    @property
    def name(self) -> str:
        """Short name such as ``residual_bias_relu``; empty if nothing is fused."""
        parts = ["residual"] * (self.residual and not self.residual_last) + ["bias"] * self.bias
        if self.activation == "clip":
            parts.append(f"clip[{self.clip_min:g},{self.clip_max:g}]")
        elif self.activation in WITH_ALPHA:
            parts.append(f"{self.activation}[{self.alpha + 0.0!r}]")
        elif self.activation != "none":
            parts.append(self.activation)
        parts += ["residual"] * self.residual_last
        second = "onlyaffinerelu" if self.affine_only else "affinerelu"
        return "_".join(parts + [second] * self.affine_relu)

    @classmethod
    def from_json(cls, data: object) -> Epilogue:
        """Read the fields of a workload's epilogue; raises InvalidWorkload naming the wrong one."""
        return checks.made(cls, data, _FIELDS, "epilogue", InvalidWorkload)


#: Nothing is applied.
NO_EPILOGUE = Epilogue()

_FLOAT = checks.number(-3.4e38, 3.4e38)
_FIELDS: dict[str, checks.Check] = {
    **dict.fromkeys(
        ("residual", "bias", "affine_relu", "affine_only", "residual_last"), checks.boolean
    ),
    "activation": checks.one_of(ACTIVATIONS),
    **dict.fromkeys(("clip_min", "clip_max", "alpha"), _FLOAT),
}
