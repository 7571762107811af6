"""`tvm.contrib.cuda_graph`: the executor that replays a CUDA graph."""
