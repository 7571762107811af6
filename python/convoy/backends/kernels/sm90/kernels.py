"""All kernels of ``codegen/sm90``."""

from __future__ import annotations

from ..instance import instance_from_json
from .dgrad import DgradKernel
from .expand_depthwise import ExpandDepthwiseKernel
from .halo import HaloConvKernel
from .image import ImageConvKernel
from .pointwise import PointwiseConvKernel
from .small import SmallConvKernel
from .stem import StemDgradKernel, StemFpropKernel, StemWgradKernel

StemKernel = StemDgradKernel | StemFpropKernel | StemWgradKernel
Sm90Kernel = (
    DgradKernel
    | ExpandDepthwiseKernel
    | HaloConvKernel
    | ImageConvKernel
    | PointwiseConvKernel
    | SmallConvKernel
    | StemKernel
)

_KINDS: tuple[type[Sm90Kernel], ...] = (
    DgradKernel,
    ExpandDepthwiseKernel,
    HaloConvKernel,
    ImageConvKernel,
    PointwiseConvKernel,
    SmallConvKernel,
    StemDgradKernel,
    StemFpropKernel,
    StemWgradKernel,
)


def kernel_from_json(data: object) -> Sm90Kernel:
    """Inverse of ``to_json``; raises InvalidOption on unknown families or fields."""
    return instance_from_json(data, _KINDS)
