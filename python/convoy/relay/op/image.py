"""`relay.image`: resizing, cropping and sampling."""

from typing import TYPE_CHECKING, Any

from convoy.relay.ops import builders

globals().update(builders("image"))
__all__ = [*builders("image")]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
