"""Element types of operands, and precisions of networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

#: Floats of 16 bits.
HALF_DTYPES = ("float16", "bfloat16")
FLOAT_DTYPES = ("float32", *HALF_DTYPES)
#: Precisions of convolutions and GEMMs, as options name them; "tf32_conv" has float32 GEMMs.
PRECISIONS = ("float32", "tf32_conv", "tf32", *HALF_DTYPES)
#: Bytes of an element.
DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "int8": 1, "int32": 4}


def numpy_dtype(name: str) -> np.dtype:
    """Return numpy's dtype of a dtype's name; bfloat16 is that of ml_dtypes."""
    import numpy as np

    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def accumulator(dtype: str) -> str:
    """Return the dtype in which a kernel adds up products of a dtype."""
    return "int32" if dtype == "int8" else "float32"


def widened(dtype: str) -> str:
    """Return the dtype in which loops compute: float32 for floats of 16 bits, else the same."""
    return "float32" if dtype in HALF_DTYPES else dtype


def math_of(precision: str, op: str) -> str:
    """Return ``Workload.math`` of a float32 operator: "tf32" where it may round operands."""
    rounded = precision == "tf32" or (precision == "tf32_conv" and op != "matmul")
    return "tf32" if rounded else "default"
