"""`relay.vision`: regions of pictures."""

from convoy.relay.op.blocks import roi_align, roi_pool

__all__ = ["roi_align", "roi_pool"]
