"""`relay.random`: random numbers, whose generator's state is a tensor."""

from typing import TYPE_CHECKING, Any

from convoy.relay.ops import builders

globals().update(builders("random"))
__all__ = [*builders("random")]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
