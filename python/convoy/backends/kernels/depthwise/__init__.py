"""Depthwise and grouped convolutions for ``codegen/depthwise``, on sm_80 and later."""
