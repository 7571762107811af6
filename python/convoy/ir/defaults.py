"""Defaults that Python's functions and the command line share."""

#: Backends with library kernels, which are tuned and have records.
LIBRARIES = ("cudnn", "cutlass", "hopper", "depthwise", "attention", "cublaslt")
#: Backends that placement chooses from.
BACKENDS = (*LIBRARIES, "tvm")
#: Seconds that a placement measures on a GPU.
BUDGET_S = 3.0
#: Milliseconds for the samples of one measurement, and within such a budget.
SAMPLES_MS, QUICK_SAMPLES_MS = 20.0, 8.0
