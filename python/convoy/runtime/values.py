"""Values that users give for inputs: arrays and tensors of any library, numbers, nested lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..errors import InvalidOption
from ..ir.artifact import TensorInfo
from ..ir.dtypes import numpy_dtype

if TYPE_CHECKING:
    import tvm
    from numpy.typing import ArrayLike

#: An input as a user gives it; tensors of other libraries convert to arrays.
Value: TypeAlias = "ArrayLike | tvm.runtime.Tensor"


def host_value(value: Value) -> ArrayLike:
    """Convert a tensor of any library to a numpy array; numbers and lists are returned unchanged.

    Raises InvalidOption for a tensor whose values cannot be read, such as a sparse one.
    """
    if isinstance(value, np.ndarray):
        return value
    try:
        if hasattr(value, "numpy"):
            value = value.detach() if hasattr(value, "detach") else value
            try:
                return np.asarray(value.numpy())
            except TypeError:  # of a dtype that the library has no numpy type for, such as bfloat16
                import tvm

                return tvm.runtime.from_dlpack(value).numpy()
        if isinstance(value, np.generic) or hasattr(value, "__array__"):
            return np.asarray(value)
    except (RuntimeError, TypeError, BufferError) as err:
        reason = (str(err).splitlines() or [""])[0]
        raise InvalidOption(
            f"a {type(value).__name__} that cannot be read ({reason})", "an array of numbers"
        ) from None
    return value


def as_array(value: Value, info: TensorInfo) -> np.ndarray:
    """Convert a user's input to a numpy array; numbers take the input's dtype.

    Raises InvalidOption for numbers outside the range of the dtype, and for ragged lists.
    """
    value = host_value(value)
    if isinstance(value, np.ndarray):
        return value
    try:
        plain = np.asarray(value)
    except ValueError:
        raise InvalidOption(
            f"lists of uneven lengths for input {info.name!r}", f"{info.shape}"
        ) from None
    wanted = numpy_dtype(info.dtype)
    if plain.dtype.kind not in "biuf" or not np.can_cast(plain.dtype, wanted, "same_kind"):
        return plain
    with np.errstate(over="ignore"):
        cast = plain.astype(wanted)
    fits = (cast == plain) if wanted.kind in "biu" else np.isfinite(cast) | ~np.isfinite(plain)
    if not fits.all():
        raise InvalidOption(
            f"{plain[~fits].flat[0]} for input {info.name!r}", f"numbers that {wanted} holds"
        )
    return cast
