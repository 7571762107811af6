"""Sparse tensors: coordinates with values, and matrices of compressed rows.

A matrix of compressed rows is data (nnz,), column indices (nnz,) and row pointers (rows + 1,); with
data (blocks, a, b) its elements are blocks (BSR). GEMMs with one unpack it, which costs memory and
keeps every backend's GEMM: a constant is unpacked when the module is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.relay.ast import Call, Constant, Expr, Tuple, TupleWrapper
from convoy.relay.builder import const as constant
from convoy.relay.ops.arguments import Sizes, known, listed, make_call
from convoy.relay.ops.expansion_call import attrs_of, const, name_of, plain, type_of
from convoy.relay.ops.registry import builder, expansion, on_host, type_rule
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import TensorType, TupleType, Type


@builder("sparse_to_dense")
def sparse_to_dense(
    sparse_indices: Expr, output_shape: Sizes, sparse_values: Expr, default_value: Any = 0
) -> Call:
    """Write values at coordinates into a tensor of a default value.

    Args:
        sparse_indices: Coordinates (n, dimensions), (n,) of a vector, or a scalar.
        output_shape: The shape, which may be computed.
        sparse_values: (n,) or a scalar.
        default_value: A scalar expression; 0 for zero.
    """
    if not isinstance(default_value, Expr):
        default_value = constant(default_value)
    args = (sparse_indices, sparse_values, default_value)
    output_shape = known(output_shape)
    if isinstance(output_shape, Expr):
        return make_call("dyn.sparse_to_dense", *args, output_shape)
    return make_call("sparse_to_dense", *args, output_shape=listed(output_shape))


@type_rule("sparse_to_dense")
def infer_sparse_to_dense(call: Inputs) -> Type:
    call.count(3)
    indices, values = call.tensor(0), call.tensor(1)
    if len(indices.shape) > 2 or len(values.shape) > 1:
        raise call.error(f"coordinates {indices} and values {values}", "a matrix and a vector")
    shape = call.shape("output_shape")
    rank = indices.shape[1] if len(indices.shape) == 2 else 1
    if isinstance(rank, int) and rank != len(shape):
        raise call.error(f"{rank} coordinates in {list(shape)}", f"{len(shape)}")
    return TensorType(shape, values.dtype)


@expansion("sparse_to_dense")
def expand_sparse_to_dense(call: Call, args: Sequence[Expr]) -> Expr:
    """Scatter the values."""
    shape, dtype = attrs_of(call)["output_shape"], type_of(call, 1).dtype
    count = type_of(call, 0).concrete_shape[:1] or (1,)
    places = plain("reshape", args[0], newshape=(*count, len(shape)))
    default = plain("reshape", plain("cast", args[2], dtype=dtype), newshape=())
    dense = plain("full", default, shape=shape, dtype=dtype)
    values = plain("broadcast_to", args[1], shape=count)
    return plain("scatter_nd", dense, plain("transpose", places, axes=(1, 0)), values)


@builder("sparse_fill_empty_rows")
def sparse_fill_empty_rows(
    sparse_indices: Expr, sparse_values: Expr, dense_shape: Expr, default_value: Expr
) -> Tuple:
    """Give each row without an element one of the default value, in column 0.

    Args:
        sparse_indices: (n, dimensions), in the order of rows.
        sparse_values: (n,).
        dense_shape: (dimensions,).
        default_value: One value.

    Returns:
        Coordinates, values, and for each row whether it had no element.
    """
    args = (sparse_indices, sparse_values, dense_shape, default_value)
    call = make_call("sparse_fill_empty_rows", *args)
    return Tuple(tuple(TupleWrapper(call, 3)))


@type_rule("sparse_fill_empty_rows")
def infer_sparse_fill_empty_rows(call: Inputs) -> Type:
    call.count(4)
    indices, values = call.tensor(0, 2), call.tensor(1, 1)
    count, rows = DynamicDim(), DynamicDim()
    return TupleType(
        [
            TensorType((count, indices.shape[1]), indices.dtype),
            TensorType((count,), values.dtype),
            TensorType((rows,), "bool"),
        ]
    )


@on_host("sparse_fill_empty_rows")
def compute_sparse_fill_empty_rows(
    call: Call, indices: np.ndarray, values: np.ndarray, shape: np.ndarray, default: np.ndarray
) -> tuple[np.ndarray, ...]:
    rows = int(shape[0])
    empty = np.ones(rows, bool)
    empty[indices[:, 0]] = False
    missing = np.flatnonzero(empty)
    added = np.zeros((len(missing), indices.shape[1]), indices.dtype)
    added[:, 0] = missing
    all_indices = np.concatenate([indices, added])
    fill = np.full(len(missing), default.reshape(-1)[0], values.dtype)
    order = np.argsort(all_indices[:, 0], kind="stable")
    return all_indices[order], np.concatenate([values, fill])[order], empty


@builder("sparse_reshape")
def sparse_reshape(sparse_indices: Expr, prev_shape: Expr, new_shape: Expr) -> TupleWrapper:
    """Convert the coordinates of one dense shape to those of another.

    Args:
        sparse_indices: (n, old dimensions).
        prev_shape: (old dimensions,).
        new_shape: (new dimensions,), of which one may be -1.

    Returns:
        Coordinates (n, new dimensions), and the new shape.
    """
    return TupleWrapper(make_call("sparse_reshape", sparse_indices, prev_shape, new_shape), 2)


@type_rule("sparse_reshape")
def infer_sparse_reshape(call: Inputs) -> Type:
    call.count(3)
    indices, old, new = call.tensor(0, 2), call.tensor(1, 1), call.tensor(2, 1)
    if isinstance(old.shape[0], int) and isinstance(indices.shape[1], int):
        call.expect(1, TensorType((indices.shape[1],), old.dtype))
    return TupleType([TensorType((indices.shape[0], new.shape[0]), indices.dtype), new])


@expansion("sparse_reshape")
def expand_sparse_reshape(call: Call, args: Sequence[Expr]) -> Expr:
    """Compute flat positions with 64 bits, and coordinates of those.

    Between equal shapes coordinates stay as they are, also those outside of the shape.
    """
    indices, old, new = (plain("cast", a, dtype="int64") for a in args)
    old_sizes = _numbers(old, type_of(call, 1).concrete_shape[0])
    new_sizes = _numbers(new, type_of(call, 2).concrete_shape[0])
    total = _product(old_sizes)
    others = _product([plain("where", _is_free(s), const(1, "int64"), s) for s in new_sizes])
    rest = plain("trunc_divide", total, plain("maximum", others, const(1, "int64")))
    new_sizes = [plain("where", _is_free(s), rest, s) for s in new_sizes]
    flat: Expr = const(0, "int64")
    for axis in range(len(old_sizes)):
        column = plain("take", indices, const(axis, "int32"), axis=1)
        flat = plain("add", plain("multiply", flat, old_sizes[axis]), column)
    columns: list[Expr] = []
    for size in reversed(new_sizes):
        divisor = plain("maximum", size, const(1, "int64"))
        columns.insert(0, plain("floor_mod", flat, divisor))
        flat = plain("floor_divide", flat, divisor)
    shape = plain("stack", Tuple(new_sizes), axis=0)
    moved = plain("stack", Tuple(columns), axis=1)
    if len(old_sizes) == len(new_sizes):
        moved = plain("where", plain("all", plain("equal", shape, old), axis=None), indices, moved)
    return Tuple(
        [
            plain("cast", moved, dtype=type_of(call, 0).dtype),
            plain("cast", shape, dtype=type_of(call, 2).dtype),
        ]
    )


def _numbers(vector: Expr, count: int) -> list[Expr]:
    return [plain("take", vector, const(i, "int32"), axis=0) for i in range(count)]


def _product(numbers: Sequence[Expr]) -> Expr:
    product: Expr = const(1, "int64")
    for number in numbers:
        product = plain("multiply", product, number)
    return product


def _is_free(size: Expr) -> Expr:
    return plain("less", size, const(0, "int64"))


# ---- matrices of compressed rows


def _fields(matrix: Any) -> tuple[Expr, Expr, Expr]:
    """Return data, column indices and row pointers of a scipy matrix or of a sequence of them."""
    parts = matrix
    if hasattr(matrix, "indptr"):
        parts = (matrix.data, matrix.indices, matrix.indptr)
    data, indices, indptr = (p if isinstance(p, Expr) else constant(p) for p in parts)
    return data, indices, indptr


@builder("nn.sparse_dense")
def sparse_dense(dense_mat: Expr, sparse_mat: Any, sparse_lhs: bool = False) -> Call:
    """Multiply by the transpose of a sparse matrix.

    Args:
        dense_mat: (m, k).
        sparse_mat: (n, k): a scipy matrix, or data, column indices and row pointers.
        sparse_lhs: Multiply the sparse matrix by the transpose of the dense one instead: (n, m).

    Returns:
        (m, n).
    """
    return make_call("nn.sparse_dense", dense_mat, *_fields(sparse_mat), sparse_lhs=sparse_lhs)


@builder("nn.sparse_add")
def sparse_add(dense_mat: Expr, sparse_mat: Any) -> Call:
    """Add a sparse matrix to a dense one of its shape; see `sparse_dense`."""
    return make_call("nn.sparse_add", dense_mat, *_fields(sparse_mat))


@builder("nn.sparse_transpose")
def sparse_transpose(x: Any) -> TupleWrapper:
    """Transpose a square sparse matrix; return its data, column indices and row pointers."""
    return TupleWrapper(make_call("nn.sparse_transpose", *_fields(x)), 3)


def _rows(call: Inputs) -> tuple[TensorType, int]:
    """Return the type of the sparse data (arguments 1 to 3) and the matrix's number of rows."""
    data, indices, indptr = call.tensor(1), call.tensor(2, 1), call.tensor(3, 1)
    if len(data.shape) not in (1, 3) or not indptr.is_static:
        raise call.error(f"sparse data {data} with rows {indptr}", "(nnz,) or (blocks, a, b)")
    if data.shape[0] != indices.shape[0]:
        raise call.error(f"{data} at columns {indices}", "one column each")
    block = data.shape[1] if len(data.shape) == 3 else 1
    assert isinstance(block, int)
    return data, (indptr.concrete_shape[0] - 1) * block


@type_rule("nn.sparse_dense")
def infer_sparse_dense(call: Inputs) -> Type:
    call.count(4)
    dense = call.tensor(0, 2)
    data, rows = _rows(call)
    if data.dtype != dense.dtype:
        raise call.error(f"{dense} times {data}", "one dtype")
    shape = (rows, dense.shape[0]) if call.attrs["sparse_lhs"] else (dense.shape[0], rows)
    return TensorType(shape, dense.dtype)


@type_rule("nn.sparse_add")
def infer_sparse_add(call: Inputs) -> Type:
    call.count(4)
    dense = call.tensor(0, 2)
    data, rows = _rows(call)
    if data.dtype != dense.dtype or dense.shape[0] != rows:
        raise call.error(f"{dense} plus {data} of {rows} rows", "one dtype and one shape")
    return dense


@type_rule("nn.sparse_transpose")
def infer_sparse_transpose(call: Inputs) -> Type:
    call.count(3)
    return TupleType([call.tensor(i, 1) for i in range(3)])


@expansion("nn.sparse_dense", "nn.sparse_add")
def expand_sparse(call: Call, args: Sequence[Expr]) -> Expr:
    columns = type_of(call, 0).concrete_shape[1]
    matrix = _unpacked(call, args, columns)
    if name_of(call) == "nn.sparse_add":
        return plain("add", args[0], matrix)
    if attrs_of(call)["sparse_lhs"]:
        return plain("nn.dense", matrix, args[0], units=None)
    return plain("nn.dense", args[0], matrix, units=None)


def _unpacked(call: Call, args: Sequence[Expr], columns: int) -> Expr:
    """Return the sparse matrix, arguments 1 to 3, as a dense one."""
    type_ = type_of(call, 1)
    blocks, *block = type_.concrete_shape
    a, b = block or (1, 1)
    block_rows, block_columns = type_of(call, 3).concrete_shape[0] - 1, columns // b
    shape = (block_rows, block_columns, *block)
    if all(isinstance(arg, Constant) for arg in args[1:4]):
        data, indices, indptr = (arg.value for arg in args[1:4])  # type: ignore[attr-defined]
        dense = np.zeros(shape, data.dtype)
        np.add.at(dense, (np.repeat(np.arange(block_rows), np.diff(indptr)), indices), data)
        rows = dense.transpose(0, 2, 1, 3) if block else dense
        return Constant(np.ascontiguousarray(rows.reshape(block_rows * a, columns)))
    rows_of = _row_numbers(args[3], blocks)
    places = plain("stack", Tuple([rows_of, plain("cast", args[2], dtype="int32")]), axis=0)
    zeros = plain("zeros", shape=shape, dtype=type_.dtype)
    matrix = plain("scatter_nd", zeros, places, args[1], mode="add")
    if block:
        matrix = plain("transpose", matrix, axes=(0, 2, 1, 3))
    return plain("reshape", matrix, newshape=(block_rows * a, columns))


def _row_numbers(indptr: Expr, count: int) -> Expr:
    """Return the row of each of `count` elements."""
    pointers = plain("cast", indptr, dtype="int32")
    places = const(np.arange(count), "int32")
    found = plain("searchsorted", pointers, places, right=True, dtype="int32")
    return plain("subtract", found, const(1, "int32"))


@expansion("nn.sparse_transpose")
def expand_sparse_transpose(call: Call, args: Sequence[Expr]) -> Expr:
    """Sort the elements by column, then by row, which is their order already."""
    count, rows = type_of(call, 0).concrete_shape[0], type_of(call, 2).concrete_shape[0]
    columns = plain("cast", args[1], dtype="int64")
    place = plain("multiply", columns, const(max(1, count), "int64"))
    key = plain("add", place, const(np.arange(count), "int64"))
    order = plain("argsort", key, axis=0, is_ascend=True, dtype="int32")
    data = plain("take", args[0], order, axis=0)
    indices = plain("take", _row_numbers(args[2], count), order, axis=0)
    ordered = plain("take", plain("cast", args[1], dtype="int32"), order, axis=0)
    numbers = const(np.arange(rows), "int32")
    indptr = plain("searchsorted", ordered, numbers, right=False, dtype="int32")
    return Tuple(
        [
            data,
            plain("cast", indices, dtype=type_of(call, 1).dtype),
            plain("cast", indptr, dtype=type_of(call, 2).dtype),
        ]
    )


@builder("segment_sum")
def segment_sum(data: Expr, segment_ids: Expr, num_segments: Any = None) -> Call:
    """Add up the rows of each segment.

    Args:
        data: (n, ...).
        segment_ids: The segment (n,) of each row.
        num_segments: Their number, an int or an expression; None takes the largest id plus one.
    """
    one = make_call("cast_like", constant([1]), segment_ids)
    if num_segments is None:
        last = make_call("max", segment_ids, axis=[0], keepdims=True)
        count = make_call("add", last, one)
    else:
        number = constant(num_segments) if not isinstance(num_segments, Expr) else num_segments
        count = make_call("cast_like", make_call("reshape", number, newshape=[1]), segment_ids)
    sizes = make_call("shape_of", data, dtype="int64")
    row = make_call("strided_slice", sizes, begin=[1], end=[2**31 - 1], strides=[1], axes=None)
    count = make_call("cast", count, dtype="int64")
    shape = make_call("concatenate", Tuple([count, row]), axis=0)
    zero = make_call("cast_like", constant(0), data)
    zeros = make_call("dyn.full", zero, shape, shape=None, dtype="")
    ids = make_call("expand_dims", segment_ids, axis=0)
    return make_call("scatter_nd", zeros, ids, data, mode="add")
