"""ToMixedPrecision: compute in half precision."""

from __future__ import annotations

from convoy.errors import InvalidOption
from convoy.relay.transform.base import ModulePass, Pass, PassInfo, register_pass


@register_pass
def ToMixedPrecision(mixed_precision_type: str = "float16", missing_op_mode: int = 1) -> Pass:
    """Let `relay.build` compute in half precision, accumulating in float32.

    Inputs and outputs keep their types.
    """
    del missing_op_mode
    if mixed_precision_type not in ("float16", "bfloat16"):
        raise InvalidOption(f"precision '{mixed_precision_type}'", "'float16' or 'bfloat16'")
    return ModulePass(
        PassInfo(0, "ToMixedPrecision"),
        lambda mod: mod.with_attr("convoy.precision", mixed_precision_type),
    )
