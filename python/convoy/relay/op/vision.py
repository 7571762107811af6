"""`relay.vision`: regions of interest."""

from typing import TYPE_CHECKING, Any

from convoy.relay.ops import builders

globals().update(builders("vision"))
__all__ = [*builders("vision")]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
