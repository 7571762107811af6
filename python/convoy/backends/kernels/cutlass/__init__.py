"""CUTLASS's implicit GEMMs: configurations, rules, and the C++ that instantiates them."""
