"""`relay.nn`: operators of neural networks.

Layouts are names such as "NCHW"; a size may be one number for all axes; padding is stored with its
values for both sides. `channels` and `kernel_size` may be None where the weight has a type.
"""

from typing import TYPE_CHECKING, Any

from convoy.relay.ops import builders

globals().update(builders("nn"))
__all__ = [*builders("nn")]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
