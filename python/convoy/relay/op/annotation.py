"""`relay.annotation`: marks without effect on values."""

from typing import TYPE_CHECKING, Any

from convoy.relay.ops import builders

globals().update(builders("annotation"))
__all__ = [*builders("annotation")]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
