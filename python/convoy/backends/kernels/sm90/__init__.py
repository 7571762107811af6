"""Kernels for Hopper in ``codegen/sm90``: a file for each, with its configuration."""
