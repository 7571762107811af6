"""`relay.qnn.op`: quantized operators, whose value q stands for scale * (q - zero point).

Scales and zero points are expressions. Those of `quantize`, `dequantize` and the simulated
operators, and zero points of convolutions and GEMMs, may be computed; all others must be constants
when the module is built.
"""

from typing import TYPE_CHECKING, Any

from convoy.relay.ops import builders
from convoy.relay.qnn.op import qnn as qnn
from convoy.relay.qnn.op.config import (
    RequantizeConfig,
    current_requantize_config,
    requantize_config,
)
from convoy.relay.registration import register_qnn_legalize as register_qnn_legalize

globals().update(builders("qnn"))
__all__ = [
    "RequantizeConfig",
    "current_requantize_config",
    "requantize_config",
    *builders("qnn"),
]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
