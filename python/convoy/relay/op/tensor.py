"""`relay`: elementwise operators, shapes, slices, new tensors, reductions, sorting."""

from typing import TYPE_CHECKING, Any

from convoy.relay.ops import builders

globals().update(builders(""))
__all__ = [*builders("")]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
