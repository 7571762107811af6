"""`relay.dataflow_pattern`: patterns of expressions, to match, partition and rewrite with.

    conv = is_op("nn.conv2d")(wildcard(), wildcard())
    pattern = is_op("nn.relu")(conv.optional(lambda x: is_op("nn.bias_add")(x, is_constant())))
    pattern.match(expr)
    pattern.partition(expr, {"Composite": "conv_relu"})

A part that is used twice in a pattern matches one node. Alternatives and orders of arguments are
tried from left to right, without going back once a part has matched, as in TVM 0.18.
"""

from convoy.relay.dataflow_pattern.nodes import (
    ConstantPattern,
    FunctionPattern,
    IfPattern,
    LetPattern,
    TupleGetItemPattern,
    TuplePattern,
    VarPattern,
)
from convoy.relay.dataflow_pattern.partitioning import partition
from convoy.relay.dataflow_pattern.pattern import (
    AltPattern,
    AttrPattern,
    CallPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    ShapePattern,
    TypePattern,
    WildcardPattern,
)
from convoy.relay.dataflow_pattern.rewriting import DFPatternCallback, rewrite
from convoy.relay.dataflow_pattern.sugar import (
    dominates,
    has_attr,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    match,
    wildcard,
)

__all__ = [
    "AltPattern",
    "AttrPattern",
    "CallPattern",
    "ConstantPattern",
    "DataTypePattern",
    "DFPattern",
    "DFPatternCallback",
    "DominatorPattern",
    "dominates",
    "ExprPattern",
    "FunctionPattern",
    "has_attr",
    "has_dtype",
    "has_shape",
    "has_type",
    "IfPattern",
    "is_constant",
    "is_expr",
    "is_if",
    "is_let",
    "is_op",
    "is_tuple",
    "is_tuple_get_item",
    "is_var",
    "LetPattern",
    "match",
    "partition",
    "rewrite",
    "ShapePattern",
    "TupleGetItemPattern",
    "TuplePattern",
    "TypePattern",
    "VarPattern",
    "wildcard",
    "WildcardPattern",
]
