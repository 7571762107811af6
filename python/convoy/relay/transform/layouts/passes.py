"""ConvertLayout, AlterOpLayout, LayoutConfig."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from inspect import signature
from typing import Any, ClassVar

from convoy.errors import RelayTypeError
from convoy.relay.ast import Call, Expr, Op
from convoy.relay.attrs import Attrs
from convoy.relay.transform.base import FunctionPass, Pass, PassInfo, register_pass
from convoy.relay.transform.layouts.conversions import conversion
from convoy.relay.transform.layouts.rewriting import LayoutRewriter
from convoy.relay.transform.rewriting import expr_pass


class LayoutConfig:
    """Leave out some convolutions, within `with LayoutConfig(...)`.

    Args:
        skip_layers: The numbers of convolutions that keep their layout, from 0 in the order of
            evaluation; -1 is none.
    """

    current: ClassVar[LayoutConfig | None] = None

    def __init__(self, skip_layers: Collection[int] | None = None) -> None:
        self.skip_layers = set(skip_layers or ())
        self.skip_counter = 0
        self._outer: LayoutConfig | None = None

    def check_skip(self) -> bool:
        """Count a convolution, and check whether it is to be left out."""
        skip = self.skip_counter in self.skip_layers
        self.skip_counter += 1
        return skip

    def reset(self) -> None:
        """Count from 0 again."""
        self.skip_counter = 0

    def __enter__(self) -> LayoutConfig:
        self._outer, LayoutConfig.current = LayoutConfig.current, self
        return self

    def __exit__(self, *exc: object) -> None:
        LayoutConfig.current = self._outer


@register_pass
def ConvertLayout(desired_layouts: Mapping[str, Sequence[str]] | None = None) -> Pass:
    """Compute operators in other layouts; transposes stand only where layouts meet.

    Functions that are registered as `FTVMConvertOpLayout` come before Convoy's own.

    Args:
        desired_layouts: For an operator's name the layouts of its data and weights, "default" for
            those that go with the data: `{"nn.conv2d": ["NHWC", "default"]}`.
    """
    desired = {name: list(wanted) for name, wanted in (desired_layouts or {}).items()}

    def change(node: Call, attrs: Attrs | None, args: list[Expr]) -> Call:
        assert isinstance(node.op, Op)
        wanted = desired.get(node.op.name)
        if wanted is not None:
            function = node.op.get_attr("FTVMConvertOpLayout") or conversion(node.op.name)
            config = LayoutConfig.current
            if function is None or attrs is None:
                return Call(node.op, args, attrs)
            if config and "conv" in node.op.name and config.check_skip():
                return Call(node.op, args, attrs)
            types = [a.checked_type for a in node.args]
            return _as_call(function(attrs, args, types, wanted), node, attrs, args)
        return Call(node.op, args, attrs)

    return _layout_pass("ConvertLayout", change, lambda op: False)


@register_pass
def AlterOpLayout() -> Pass:
    """Replace calls by what the function registered as `FTVMAlterOpLayout` returns.

    The function gets the attributes, the arguments, the types of the arguments and of the result
    (before TVM 0.7 not this one), and returns a call in any layout, or None. The operators around
    follow that layout.
    """

    def change(node: Call, attrs: Attrs | None, args: list[Expr]) -> Call:
        assert isinstance(node.op, Op)
        function = node.op.get_attr("FTVMAlterOpLayout")
        if function is None:
            return Call(node.op, args, attrs)
        given = attrs, args, [a.checked_type for a in node.args], node.checked_type
        try:
            signature(function).bind(*given)
        except TypeError:
            return _as_call(function(*given[:3]), node, attrs, args)
        return _as_call(function(*given), node, attrs, args)

    return _layout_pass("AlterOpLayout", change, lambda op: op.has_attr("FTVMAlterOpLayout"))


def _as_call(found: Any, node: Call, attrs: Attrs | None, args: list[Expr]) -> Call:
    found = getattr(found, "tuple_value", found)
    if found is None:
        return Call(node.op, args, attrs)
    if not isinstance(found, Call):
        raise RelayTypeError(f"a {type(found).__name__} in the place of a call", "a call or None")
    return found


def _layout_pass(name: str, change: Any, is_changed: Any) -> Pass:
    made = expr_pass(name, 3, lambda f: LayoutRewriter(change, is_changed).rewrite(f))
    info = PassInfo(3, name, ("InferType", "CanonicalizeOps") if name == "ConvertLayout" else ())
    return FunctionPass(info, made._run)
