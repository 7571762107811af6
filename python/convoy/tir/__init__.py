"""Schedules of the kernels that TVM generates itself, for NVIDIA GPUs."""

from .channel_reduce import ChannelReduce
from .elementwise import Elementwise
from .row_reduce import RowReduce
from .rules import Rescheduled, rescheduled, schedule_kernels, simpler
from .window import Window

__all__ = [
    "ChannelReduce",
    "Elementwise",
    "Rescheduled",
    "RowReduce",
    "Window",
    "rescheduled",
    "schedule_kernels",
    "simpler",
]
