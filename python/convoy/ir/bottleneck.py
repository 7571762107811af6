"""The 1x1 convolutions that one kernel computes together with the convolution in front of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import InvalidWorkload
from . import fields as checks
from .epilogue import NO_EPILOGUE, Epilogue

if TYPE_CHECKING:
    from .workload import Workload


@dataclass(frozen=True, order=True)
class Bottleneck:
    """Fields of a ``bottleneck`` workload beside those of its first convolution.

    Both convolutions have stride 1 and no padding.

    expand           results of the convolution that reads the first one's
    expand_epilogue  of that: its bias, residual and activation
    reduce           results of a third convolution, which reads the second one's; 0 without one
    reduce_epilogue  of the third: its bias and activation
    """

    expand: int
    expand_epilogue: Epilogue = NO_EPILOGUE
    reduce: int = 0
    reduce_epilogue: Epilogue = NO_EPILOGUE

    def __post_init__(self) -> None:
        second, third = self.expand_epilogue, self.reduce_epilogue
        if second.residual_last or second.affine_relu:
            raise InvalidWorkload(
                f"a bottleneck with epilogue {second.name!r} of its second convolution",
                "bias, residual and the activation behind them alone",
            )
        if third.residual or third.affine_relu:
            raise InvalidWorkload(
                f"a bottleneck with epilogue {third.name!r} of its third convolution",
                "bias and activation alone",
            )
        if not self.reduce and third != NO_EPILOGUE:
            raise InvalidWorkload(
                f"a bottleneck of two convolutions with epilogue {third.name!r} of a third",
                "none, or a third convolution",
            )

    @property
    def name(self) -> str:
        """Short name for keys, e.g. ``expand256.residual_bias_relu.reduce64.bias_relu``."""
        parts = [f"expand{self.expand}", self.expand_epilogue.name]
        if self.reduce:
            parts += [f"reduce{self.reduce}", self.reduce_epilogue.name]
        return ".".join(filter(None, parts))

    @classmethod
    def from_json(cls, data: object) -> Bottleneck:
        """Inverse of ``dataclasses.asdict``; raises InvalidWorkload naming the field."""
        return checks.made(cls, data, _FIELDS, "bottleneck", InvalidWorkload, ("expand",))


_FIELDS: dict[str, checks.Check] = {
    "expand": checks.integer(1, 1 << 24),
    "expand_epilogue": Epilogue.from_json,
    "reduce": checks.integer(0, 1 << 24),
    "reduce_epilogue": Epilogue.from_json,
}


def parts(workload: Workload) -> tuple[Workload, ...]:
    """Return the convolutions of a bottleneck, each as a workload of its own."""
    bottleneck = workload.bottleneck
    assert bottleneck is not None, workload.key
    first = dataclasses.replace(workload, op="fprop", bottleneck=None)
    second = dataclasses.replace(
        first, h=first.p, w=first.q, c=first.k, k=bottleneck.expand, r=1, s=1, padding=(0,) * 4,
        dilation=(1, 1), epilogue=bottleneck.expand_epilogue,
    )  # fmt: skip
    if not bottleneck.reduce:
        return first, second
    third = dataclasses.replace(
        second, c=second.k, k=bottleneck.reduce, epilogue=bottleneck.reduce_epilogue
    )
    return first, second, third
