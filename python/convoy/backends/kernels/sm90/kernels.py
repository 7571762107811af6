"""All kernels of ``codegen/sm90``."""

from __future__ import annotations

from ..instance import instance_from_json
from .bottleneck import BottleneckKernel
from .dgrad import DgradKernel
from .expand_depthwise import ExpandDepthwiseKernel
from .halo import HaloConvKernel
from .image import ImageConvKernel
from .pointwise import PointwiseConvKernel
from .small import SmallConvKernel
from .squeeze_excite import SqueezeExciteKernel
from .stem import StemDgradKernel, StemFpropKernel, StemWgradKernel

StemKernel = StemDgradKernel | StemFpropKernel | StemWgradKernel
Sm90Kernel = (
    BottleneckKernel
    | DgradKernel
    | ExpandDepthwiseKernel
    | HaloConvKernel
    | ImageConvKernel
    | PointwiseConvKernel
    | SmallConvKernel
    | SqueezeExciteKernel
    | StemKernel
)

_KINDS: tuple[type[Sm90Kernel], ...] = (
    BottleneckKernel,
    DgradKernel,
    ExpandDepthwiseKernel,
    HaloConvKernel,
    ImageConvKernel,
    PointwiseConvKernel,
    SmallConvKernel,
    SqueezeExciteKernel,
    StemDgradKernel,
    StemFpropKernel,
    StemWgradKernel,
)


def kernel_from_json(data: object) -> Sm90Kernel:
    """Inverse of ``to_json``; raises InvalidOption on unknown families or fields."""
    return instance_from_json(data, _KINDS)
