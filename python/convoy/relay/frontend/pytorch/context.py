"""The conversion of one call: by the user, as a constant, by its converter, or decomposed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from convoy.errors import ConvoyError, UnsupportedOp
from convoy.relay.ast import Constant, Expr, TupleWrapper
from convoy.relay.frontend.common import dtype_of, infer_shape, value_of
from convoy.relay.frontend.pytorch.quantized_operators import in_real, on_integers
from convoy.relay.frontend.pytorch.registry import Call, constant, converter_of
from convoy.relay.frontend.pytorch.values import Opaque, Quantized

# Operators that are evaluated by no means: their results differ from call to call.
_RANDOM = (
    "rand", "randn", "randint", "bernoulli", "multinomial", "normal", "uniform", "dropout",
    "rand_like", "randn_like", "randint_like", "randperm", "poisson", "exponential", "empty",
    "new_empty", "empty_like", "empty_strided", "native_dropout", "feature_dropout",
)  # fmt: skip


# Converts what PyTorch decomposes an operator into: `exported.decomposed`.
Decompose = Callable[["Context", str, str, Mapping[str, Any]], "tuple[Any] | None"]


class Context:
    """State that the conversions of all calls of a graph share.

    Attributes:
        default_dtype: The dtype of floating-point results that nothing else determines.
        custom: Converters of the user by operator: (inputs, their dtypes) -> expression.
        decompose: Converts operators that have no converter.
    """

    def __init__(
        self, default_dtype: str, custom: Mapping[str, Callable[..., Any]], decompose: Decompose
    ) -> None:
        self.default_dtype, self.custom = default_dtype, dict(custom)
        self._decompose = decompose
        self._decomposing: list[str] = []

    def knows(self, name: str) -> bool:
        """Return whether a converter is registered, or the user's."""
        return name in self.custom or converter_of(name) is not None

    def convert(self, name: str, overload: str, args: Mapping[str, Any]) -> Any:
        """Convert a call.

        Args:
            name: The operator, such as `aten::add`.
            overload: Its overload, such as "Tensor".
            args: Its arguments by the names of its schema.

        Returns:
            A value, or a list of them for an operator of several results.

        Raises:
            UnsupportedOp: No way to convert it.
        """
        if name in self.custom:
            values = [v.dequantized() if isinstance(v, Quantized) else v for v in args.values()]
            types = [dtype_of(v) if isinstance(v, Expr) else type(v).__name__ for v in values]
            return _plain(self.custom[name](values, types))
        if _is_constant(args) and name.rpartition("::")[2].rstrip("_") not in _RANDOM:
            found = evaluate(name, overload, args)
            if found is not None:
                return found[0]
        converter = converter_of(name)
        if converter is None:
            return self.decompose(name, overload, args)
        call = Call(name, args, self.default_dtype)
        try:
            for quantized in (on_integers, in_real):
                found = quantized(call)
                if found is not None:
                    return found
            return _plain(converter(call))
        except UnsupportedOp:
            raise
        except ConvoyError as error:
            raise error.reworded(f"PyTorch {name}: {error.got}") from error

    def decompose(self, name: str, overload: str, args: Mapping[str, Any]) -> Any:
        """Convert the operators that PyTorch itself expresses an operator with.

        Raises:
            UnsupportedOp: PyTorch has no decomposition of it.
        """
        missing = UnsupportedOp(
            f"PyTorch operator without a converter: {name}",
            remedy="Pass custom_convert_map={name: f}, or replace it in the model",
        )
        if name in self._decomposing:
            raise missing
        self._decomposing.append(name)
        try:
            result = self._decompose(self, name, overload, args)
        finally:
            self._decomposing.pop()
        if result is None:
            raise missing
        return result[0]


def _plain(result: Any) -> Any:
    return list(result) if isinstance(result, TupleWrapper) else result


def _is_constant(value: Any) -> bool:
    """Return whether a value holds no tensor that is computed."""
    if isinstance(value, Mapping):
        return all(map(_is_constant, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_constant, value))
    if isinstance(value, Expr):
        return isinstance(value, Constant)
    return not isinstance(value, Quantized | Opaque)


def operator(name: str, overload: str) -> Any:
    """Return PyTorch's operator, None where it has none of that name."""
    import torch

    namespace, _, short = name.partition("::")
    try:
        packet = getattr(getattr(torch.ops, namespace), short)
        return getattr(packet, overload or "default")
    except (AttributeError, RuntimeError):
        return None


def bound(target: Any, args: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Sort arguments into positional and keyword ones, as an operator's schema has them."""
    positional, keywords = [], {}
    for argument in target._schema.arguments:
        if argument.name not in args:
            continue
        if argument.kwarg_only:
            keywords[argument.name] = args[argument.name]
        else:
            positional.append(args[argument.name])
    return positional, keywords


def evaluate(name: str, overload: str, args: Mapping[str, Any]) -> tuple[Any] | None:
    """Run an operator whose arguments are known.

    Returns:
        Its result, in a tuple; None where PyTorch does not run it this way.
    """
    import torch

    target = operator(name, overload)
    if target is None:
        return None
    positional, keywords = bound(target, {k: _to_torch(v) for k, v in args.items()})
    if keywords.get("device") is not None:
        keywords["device"] = torch.device("cpu")
    try:
        with torch.no_grad():
            return (_from_torch(target(*positional, **keywords)),)
    except Exception:  # of any class; the converter has a say then
        return None


def _to_torch(value: Any) -> Any:
    import torch

    if isinstance(value, Constant):
        if value.value.dtype.name == "bfloat16":
            return torch.from_numpy(value.value.astype("float32")).to(torch.bfloat16)
        return torch.from_numpy(value.value.copy())
    return type(value)(map(_to_torch, value)) if isinstance(value, list | tuple) else value


def _from_torch(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_quantized or value.is_complex():
            raise TypeError
        return constant(value)
    if isinstance(value, list | tuple):
        return [_from_torch(v) for v in value]
    return value


def example(value: Any) -> Any:
    """Return a tensor of PyTorch like an expression: zeros, or the values of a constant."""
    import torch

    if isinstance(value, Constant):
        return _to_torch(value)
    if isinstance(value, Expr):
        return torch.zeros(infer_shape(value), dtype=getattr(torch, dtype_of(value)))
    return value


def known(value: Any) -> Any:
    """Return the Python number of a constant of one element, any other value as it is."""
    array = value_of(value)
    return array.item() if array is not None and array.size == 1 else value
