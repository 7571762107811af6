"""`tvm.error`: TVM 0.18's errors, by the classes that TVM and Convoy raise today.

Every error that Convoy raises on purpose is a DiagnosticError, and as such a TVMError.
"""

from convoy.errors import ConvoyError, RelayTypeError, UnsupportedOp
from convoy.relay.tvm018.modules import forward

__all__ = [
    "DiagnosticError",
    "OpAttributeInvalid",
    "OpAttributeUnImplemented",
    "OpError",
    "OpNotImplemented",
    "TVMError",
]

TVMError = RuntimeError
DiagnosticError = ConvoyError
OpError = ConvoyError
OpNotImplemented = OpAttributeUnImplemented = UnsupportedOp
OpAttributeInvalid = RelayTypeError

__getattr__ = forward("tvm.error")
