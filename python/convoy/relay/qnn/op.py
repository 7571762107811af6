"""`relay.qnn.op`: quantized operators, whose value q stands for scale * (q - zero point).

Scales and zero points are expressions, which must be constants when the module is built.
"""

from typing import TYPE_CHECKING, Any

from convoy.relay.ops import builders

globals().update(builders("qnn"))
__all__ = [*builders("qnn")]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
