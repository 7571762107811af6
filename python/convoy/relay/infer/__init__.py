"""Type inference with the rules of TVM 0.18.

`engine` walks a module and applies the type rules that `relay.ops` registers; `polymorphic` types
calls of functions.
"""

from convoy.relay.infer.engine import infer_expr, infer_module

__all__ = ["infer_expr", "infer_module"]
