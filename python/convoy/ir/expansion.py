"""The 1x1 convolution that one kernel computes together with the depthwise convolution of its
result."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidWorkload
from . import fields as checks
from .epilogue import NO_EPILOGUE, Epilogue


@dataclass(frozen=True, order=True)
class Expansion:
    """Fields of an ``expand_depthwise`` workload beside those of its depthwise convolution.

    channels  of the input of the 1x1 convolution, which has stride 1 and no padding
    epilogue  of the 1x1 convolution: its bias and activation
    """

    channels: int
    epilogue: Epilogue = NO_EPILOGUE

    def __post_init__(self) -> None:
        if self.epilogue.residual or self.epilogue.affine_relu:
            raise InvalidWorkload(
                f"an expansion with epilogue {self.epilogue.name!r}", "bias and activation alone"
            )

    @property
    def name(self) -> str:
        """Short name for keys, e.g. ``expand16.bias_relu``."""
        return ".".join(filter(None, (f"expand{self.channels}", self.epilogue.name)))

    @classmethod
    def from_json(cls, data: object) -> Expansion:
        """Inverse of ``dataclasses.asdict``; raises InvalidWorkload naming the field."""
        return checks.made(cls, data, _FIELDS, "expansion", InvalidWorkload, ("channels",))


_FIELDS: dict[str, checks.Check] = {
    "channels": checks.integer(1, 1 << 24),
    "epilogue": Epilogue.from_json,
}
