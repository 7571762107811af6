"""Flash attention for ``codegen/attention``, on sm_80 and later."""
