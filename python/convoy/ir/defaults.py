"""Defaults that Python's functions and the command line share."""

#: Backends with library kernels, which are tuned and have records.
LIBRARIES = ("cudnn", "cutlass", "hopper", "depthwise", "attention", "cublaslt")
#: Backends that placement chooses from.
BACKENDS = (*LIBRARIES, "tvm")
#: Seconds that a placement measures on a GPU.
BUDGET_S = 3.0
