"""What converters emit their results with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from .call import Converter

#: An expression of the builder's language.
Expr = Any


class Builder(ABC):
    """Emits expressions in one language.

    Attributes:
        native: Converters by domain and operator that precede those of ``ops/``: of operators that
            the language itself has, where that is what its users look for.
    """

    native: ClassVar[Mapping[tuple[str, str], Converter]] = {}

    @abstractmethod
    def is_expr(self, value: Any) -> bool:
        """Whether a value is an expression of the language."""

    @abstractmethod
    def constant(self, array: np.ndarray) -> Expr:
        """A constant."""

    @abstractmethod
    def apply(self, op: str, *args: Any, **attrs: Any) -> Expr:
        """Call an operator, which has the name and the arguments that it has in ``relax.op``."""

    @abstractmethod
    def has(self, op: str) -> bool:
        """Whether there is an operator of the language's own, such as ``nn.bias_add``."""

    @abstractmethod
    def emit(self, expr: Expr, name: str) -> Expr:
        """Bind an expression to a variable where the language does so; it has a type then."""

    @abstractmethod
    def item(self, expr: Expr, index: int) -> Expr:
        """A field of a tuple."""

    @abstractmethod
    def dims(self, expr: Expr) -> tuple[Any, ...]:
        """The sizes of a tensor; those that are known at run time only are no int."""

    @abstractmethod
    def dtype(self, expr: Expr) -> str:
        """The dtype of a tensor."""
