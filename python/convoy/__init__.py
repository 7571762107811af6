"""Convoy places every convolution of a network on cuDNN or CUTLASS by measured cost."""

__version__ = "0.1.0"
