"""The two GEMMs that one kernel computes together with the image whose channels they scale."""

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
class SqueezeExcite:
    """Fields of a ``squeeze_excite`` workload beside those of its image.

    channels          results of the first GEMM, of the means of an image's channels
    squeeze_epilogue  of that: its bias and activation
    gate_epilogue     of the second GEMM, whose results are the gates of the channels
    """

    channels: int
    squeeze_epilogue: Epilogue = NO_EPILOGUE
    gate_epilogue: Epilogue = NO_EPILOGUE

    def __post_init__(self) -> None:
        for name, epilogue in (("first", self.squeeze_epilogue), ("second", self.gate_epilogue)):
            if epilogue.residual or epilogue.affine_relu:
                raise InvalidWorkload(
                    f"a squeeze-and-excitation block with epilogue {epilogue.name!r} of its "
                    f"{name} GEMM",
                    "bias and activation alone",
                )

    @property
    def name(self) -> str:
        """Short name for keys, e.g. ``squeeze4.bias_silu.gate.bias_sigmoid``."""
        parts = [f"squeeze{self.channels}", self.squeeze_epilogue.name]
        parts += ["gate", self.gate_epilogue.name]
        return ".".join(filter(None, parts))

    @classmethod
    def from_json(cls, data: object) -> SqueezeExcite:
        """Inverse of ``dataclasses.asdict``; raises InvalidWorkload naming the field."""
        return checks.made(cls, data, _FIELDS, "squeeze_excite", InvalidWorkload, ("channels",))


_FIELDS: dict[str, checks.Check] = {
    "channels": checks.integer(1, 1 << 24),
    "squeeze_epilogue": Epilogue.from_json,
    "gate_epilogue": Epilogue.from_json,
}


def block_of(workload: Workload) -> SqueezeExcite:
    """Return the block of a workload that has one."""
    assert workload.squeeze_excite is not None, workload.key
    return workload.squeeze_excite


def image_of(workload: Workload) -> Workload:
    """Return the 1x1 convolution of the sizes of a block's image."""
    return dataclasses.replace(workload, op="fprop", squeeze_excite=None)


def squeeze_and_excite(workload: Workload) -> tuple[Workload, Workload]:
    """Return the two GEMMs of a block, each as a workload of its own."""
    block = block_of(workload)
    squeeze = dataclasses.replace(
        image_of(workload), h=1, w=1, k=block.channels, epilogue=block.squeeze_epilogue
    )
    excite = dataclasses.replace(
        squeeze, c=block.channels, k=workload.c, epilogue=block.gate_epilogue
    )
    return squeeze, excite
