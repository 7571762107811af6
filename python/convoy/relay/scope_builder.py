"""`tvm.relay.scope_builder`: ScopeBuilder under its former path."""

from convoy.relay.builder import ScopeBuilder

__all__ = ["ScopeBuilder"]
