"""Time candidates and whole networks on the GPU."""
