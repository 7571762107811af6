"""Partitioning for one library, as TVM 0.18 offers it.

A network that is built without it uses whatever kernel is fastest for each operator.
"""

from convoy.relay.op.contrib import cudnn, cutlass
from convoy.relay.op.contrib.cudnn import partition_for_cudnn
from convoy.relay.op.contrib.cutlass import partition_for_cutlass
from convoy.relay.op.contrib.register import get_pattern_table, register_pattern_table
from convoy.relay.op.nn import adaptive_avg_pool2d, adaptive_max_pool2d

__all__ = [
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "cudnn",
    "cutlass",
    "get_pattern_table",
    "partition_for_cudnn",
    "partition_for_cutlass",
    "register_pattern_table",
]
