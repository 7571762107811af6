"""`relay.qnn.op.qnn`: the builders of quantized operators, under their former path."""

from typing import TYPE_CHECKING, Any

from convoy.relay.ops import builders

globals().update(builders("qnn"))
__all__ = [*builders("qnn")]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
