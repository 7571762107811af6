"""`relay.qnn.transform`: passes over quantized operators."""

from __future__ import annotations

from convoy.relay import transform as relay_transform
from convoy.relay.convert.canonicalize import canonicalize
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.transform.base import Pass


def CanonicalizeOps() -> Pass:
    """Expand quantized operators into integer arithmetic."""
    return Pass("qnn.CanonicalizeOps", _canonicalized)


def _canonicalized(mod: IRModule) -> IRModule:
    return canonicalize(infer_module(mod), only="qnn.")


def Legalize() -> Pass:
    """Replace calls by what the function registered for their operator returns.

    The functions are registered as `FTVMQnnLegalize`; see `relay.transform.Legalize`.
    """
    return relay_transform.Legalize("FTVMQnnLegalize")
