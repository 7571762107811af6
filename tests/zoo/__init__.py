"""Small PyTorch networks, each with what one architecture is known for: ``NETWORKS`` by name.

They are for checking, not for timing: few channels, small maps, a second or two to compile. To add
one, decorate a function that returns a module with ``network`` and its input shapes; weights and
the statistics of norms are drawn by ``registry.make``. Training steps to check are in steps.py.
"""

from . import classifiers, corners, dense, mobile
from .registry import NETWORKS, Small, make

__all__ = ["NETWORKS", "Small", "classifiers", "corners", "dense", "make", "mobile"]
