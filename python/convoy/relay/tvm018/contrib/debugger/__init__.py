"""`tvm.contrib.debugger`: the executor that profiles."""
