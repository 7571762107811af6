"""The registry of converters of PyTorch's operators, and what a converter is given."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from convoy.errors import UnsupportedOp
from convoy.relay.ast import Expr
from convoy.relay.frontend import common
from convoy.relay.frontend.common import const

Converter = Callable[["Call"], Any]
_F = TypeVar("_F", bound=Callable[..., Any])
_CONVERTERS: dict[str, Converter] = {}

# Numbers of dtypes in TorchScript.
DTYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32",
    7: "float64", 11: "bool", 12: "int8", 13: "uint8", 14: "int32", 15: "bfloat16",
}  # fmt: skip


def convert(*names: str, namespace: str = "aten") -> Callable[[_F], _F]:
    """Register the converter of operators, whose in-place forms (`add_`) are theirs as well."""

    def register(function: _F) -> _F:
        for name in names:
            _CONVERTERS[f"{namespace}::{name}"] = function
        return function

    return register


def converter_of(name: str) -> Converter | None:
    """Return the converter of an operator such as `aten::add`, None where there is none."""
    found = _CONVERTERS.get(name)
    if found is None and name.endswith("_") and not name.endswith("__"):
        return _CONVERTERS.get(name[:-1])
    return found


def converted_ops() -> list[str]:
    """Return the names of all operators that have a converter."""
    return sorted(_CONVERTERS)


class Call:
    """A call of an operator while it is converted.

    Attributes:
        name: The operator: `aten::add`.
        args: Its arguments by the names of its schema: expressions for tensors, Python values for
            all else.
        default_dtype: The dtype of floating-point results that nothing else determines.
    """

    def __init__(self, name: str, args: Mapping[str, Any], default_dtype: str) -> None:
        self.name, self.args, self.default_dtype = name, dict(args), default_dtype

    @property
    def short(self) -> str:
        """The name without namespace and the underscore of in-place forms."""
        return self.name.rpartition("::")[2].rstrip("_")

    def error(self, got: str, expected: str = "", remedy: str = "") -> UnsupportedOp:
        """Make the error for a call that cannot be converted."""
        return UnsupportedOp(f"PyTorch {self.name}: {got}", expected, remedy)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument, or a default where it is None or left out."""
        found = self.args.get(name)
        return default if found is None else found

    def warn_of_training(self) -> None:
        """Warn that a model in training mode is converted as for inference, as TVM 0.18 did."""
        warnings.warn(
            f"{self.name} in training mode is converted for inference; call model.eval() before "
            "tracing",
            stacklevel=2,
        )

    def __getitem__(self, name: str) -> Any:
        """Return a tensor argument; a number becomes a 0-d tensor."""
        found = self.args.get(name)
        if found is None:
            raise self.error(f"no {name}", "a tensor")
        return self.tensor(found)

    def tensor(self, value: Any) -> Expr:
        """Convert a value to an expression."""
        if isinstance(value, Expr):
            return value
        if isinstance(value, bool | int | float):
            return self.number(value)
        if hasattr(value, "dequantized"):
            return value.dequantized()
        raise self.error(f"a {type(value).__name__}", "a tensor")

    def number(self, value: Any) -> Expr:
        """Make a 0-d tensor of a Python number, in the dtype that PyTorch gives it."""
        if isinstance(value, bool):
            return common.scalar(value, "bool")
        return common.scalar(value, "int64" if isinstance(value, int) else self.default_dtype)

    def ints(self, name: str) -> list[int] | None:
        """Return an argument of integers, None where it is None."""
        value = self.args.get(name)
        if value is None:
            return None
        values = value if isinstance(value, Sequence) else [value]
        return [self.whole(v) for v in values]

    def whole(self, value: Any) -> int:
        """Return a number that must be known while the graph is converted."""
        found = common.value_of(value) if isinstance(value, Expr) else value
        if found is None:
            raise self.error(
                "a number that is computed at run time",
                "one that is known",
                "Trace the model with fixed sizes (torch.jit.trace)",
            )
        return int(found)

    def dtype(self, name: str = "dtype") -> str | None:
        """Return a dtype argument by its name in Relay, None where it is None."""
        return dtype_name(self.args.get(name), self)

    def axis(self, name: str = "dim", of: str = "self") -> int:
        """Return an axis argument, counted from the front."""
        ndim = max(common.rank(self[of]), 1)
        axis = self.whole(self.args[name])
        if not -ndim <= axis < ndim:
            raise self.error(f"axis {axis} of a tensor of {ndim} dimensions")
        return axis % ndim

    def axes(self, name: str = "dim", of: str = "self") -> tuple[int, ...]:
        """Return axes, counted from the front; None and [] are all of them."""
        ndim = common.rank(self[of])
        found = self.ints(name)
        return tuple(range(ndim)) if not found else tuple(a % ndim for a in found)

    def promoted(self, *names: str) -> list[Expr]:
        """Return arguments cast to the dtype that PyTorch computes them in."""
        values = [self.args[n] for n in names]
        dtype = result_dtype(values, self)
        return [common.cast(self.tensor(v), dtype) for v in values]

    def floating(self, name: str = "self") -> Expr:
        """Return a tensor argument; integers become the default dtype."""
        value = self[name]
        return value if common.is_float(value) else common.cast(value, self.default_dtype)


def dtype_name(value: Any, call: Call | None = None) -> str | None:
    """Return the name of a dtype that is a torch.dtype, its number in TorchScript, or None."""
    if value is None:
        return None
    name = DTYPES.get(value) if isinstance(value, int) else str(value).removeprefix("torch.")
    if name == "half":
        name = "float16"
    if name is None or name.startswith("complex"):
        raise (call.error if call else UnsupportedOp)(f"dtype {value}", "numbers or bools")
    return {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}.get(name, name)


def result_dtype(values: Sequence[Any], call: Call) -> str:
    """Return the dtype of arithmetic on tensors and numbers.

    Tensors count before 0-d tensors, and these before numbers: a later class counts only where it
    is of a higher kind (bool, integer, floating-point).
    """
    import torch

    classes: list[list[Any]] = [[], [], []]
    for value in values:
        if isinstance(value, bool | int | float):
            of_number = {bool: torch.bool, int: torch.int64}.get(type(value))
            classes[2].append(of_number or getattr(torch, call.default_dtype))
        else:
            tensor = call.tensor(value)
            place = 0 if common.rank(tensor) else 1
            classes[place].append(getattr(torch, common.dtype_of(tensor)))

    def kind(dtype: Any) -> int:
        return 0 if dtype == torch.bool else 2 if dtype.is_floating_point else 1

    found = None
    for group in classes:
        if not group:
            continue
        joined = group[0]
        for dtype in group[1:]:
            joined = torch.promote_types(joined, dtype)
        if found is None or kind(joined) > kind(found):
            found = joined
    return str(found).removeprefix("torch.")


def constant(value: Any) -> Expr:
    """Make a constant of a torch tensor."""
    return const(to_numpy(value))


def to_numpy(tensor: Any) -> Any:
    """Return the array of a torch tensor; bfloat16 is that of ml_dtypes."""
    import torch

    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.resolve_neg().contiguous().numpy()
