"""Small systems of linear equations, as of camera matrices, and Cholesky factors, unrolled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten
#: Rows of a system that is unrolled, at most.
_MOST_ROWS = 16


def _eliminated(a: Any, b: Any) -> tuple[Any, list[Any]]:
    """The solution of ``a @ x = b`` and the factors of the determinant of ``a`` (..., n, n), with
    the largest element of a column as its pivot."""
    n = a.shape[-1]
    rows, both = torch.arange(n, device=a.device), torch.cat((a, b), -1)
    factors = []
    for k in range(n):
        pivot = both[..., k:, k].abs().argmax(-1, keepdim=True) + k
        swapped = torch.where(rows == k, pivot, torch.where(rows == pivot, k, rows))
        both = both.gather(-2, swapped.unsqueeze(-1).expand(both.shape))
        first = both[..., k, k]
        factors.append(torch.where(pivot[..., 0] == k, first, -first))
        row = both[..., k : k + 1, :] / first[..., None, None]
        at_row = (rows == k).unsqueeze(-1)
        both = torch.where(at_row, row, both - both[..., k : k + 1] * row)
    return both[..., n:], factors


def _inverse(a: Any) -> Any:
    if a.shape[-1] > _MOST_ROWS:
        return NotImplemented
    unit = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device).expand(a.shape)
    return _eliminated(a, unit)[0]


def _solve(a: Any, b: Any, *, left: bool = True) -> Any:
    is_vector = b.dim() == 1 or b.shape == a.shape[:-1]
    if a.shape[-1] > _MOST_ROWS:
        return NotImplemented
    right = b.unsqueeze(-1) if is_vector else b
    if not left:
        a, right = a.mT, right if is_vector else right.mT
    batch = torch.broadcast_shapes(a.shape[:-2], right.shape[:-2])
    a, right = a.expand(*batch, *a.shape[-2:]), right.expand(*batch, *right.shape[-2:])
    x = _eliminated(a, right)[0]
    return x.squeeze(-1) if is_vector else x if left else x.mT


def _determinant(a: Any) -> Any:
    if a.shape[-1] > _MOST_ROWS:
        return NotImplemented
    factors = torch.stack(_eliminated(a, a[..., :0])[1], -1)
    return factors.prod(-1), *_of_gradients(a)


def _log_determinant(a: Any) -> Any:
    """The sign, and the logarithm of the absolute value."""
    if a.shape[-1] > _MOST_ROWS:
        return NotImplemented
    factors = torch.stack(_eliminated(a, a[..., :0])[1], -1)
    return factors.sign().prod(-1), factors.abs().log().sum(-1), *_of_gradients(a)


def _of_gradients(a: Any) -> tuple[Any, Any]:
    """Results that gradients need alone."""
    return a, a.new_zeros(a.shape[:-1], dtype=torch.int32)


def _cholesky(a: Any, upper: bool = False) -> Any:
    """Columns of the lower factor, each from what those before it leave; only one triangle of ``a``
    is read."""
    n = a.shape[-1]
    if n > _MOST_ROWS:
        return NotImplemented
    lower = a.mT.tril() if upper else a.tril()
    left, columns = lower + lower.tril(-1).mT, []
    for k in range(n):
        column = left[..., k] / left[..., k, k].sqrt().unsqueeze(-1)
        left = left - column.unsqueeze(-1) * column.unsqueeze(-2)
        columns.append(column)
    factor = torch.stack(columns, -1).tril()
    return factor.mT if upper else factor


def _triangular(
    a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    if unitriangular:
        unit = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        return _solve((a.triu(1) if upper else a.tril(-1)) + unit, b, left=left)
    return _solve(a.triu() if upper else a.tril(), b, left=left)


def _cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    """The solution of ``a @ x = b`` with a factor of ``a``."""
    lower = factor.triu().mT if upper else factor.tril()
    return _solve(lower @ lower.mT, b)


def _unchecked(function: Callable[..., Any]) -> Callable[..., Any]:
    """With the zeros that PyTorch returns where it has found no error."""

    def decompose(a: Any, *args: Any, check_errors: bool = False, **options: Any) -> Any:
        result = function(a, *args, **options)
        if result is NotImplemented:
            return NotImplemented
        return result, a.new_zeros(result.shape[: a.dim() - 2], dtype=torch.int32)

    return decompose


#: Without the check of the result of PyTorch's own, which is an error for a singular matrix.
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _aten.inverse.default: _inverse,
    _aten.linalg_inv.default: _inverse,
    _aten.linalg_inv_ex.default: _unchecked(_inverse),
    _aten.linalg_solve.default: _solve,
    _aten.linalg_solve_ex.default: _unchecked(_solve),
    _aten.linalg_solve_triangular.default: _triangular,
    _aten._linalg_det.default: _determinant,
    _aten._linalg_slogdet.default: _log_determinant,
    _aten.linalg_cholesky.default: lambda a, *, upper=False: _cholesky(a, upper),
    _aten.linalg_cholesky_ex.default: _unchecked(lambda a, *, upper=False: _cholesky(a, upper)),
    _aten.cholesky_solve.default: _cholesky_solve,
}
if hasattr(_aten, "cholesky"):  # until PyTorch 2.13
    DECOMPOSITIONS[_aten.cholesky.default] = _cholesky
