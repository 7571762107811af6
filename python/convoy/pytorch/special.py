"""Special functions in terms of elementary ones, to the accuracy of float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

_aten = torch.ops.aten
#: Lanczos' approximation of the gamma function for g = 7 with nine terms.
_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
    -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
)  # fmt: skip
#: Bernoulli numbers over 2k: psi(x) = ln(x) - 1/(2x) - the sum of these over x^(2k).
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132)
#: Giles, "Approximating the erfinv function" (2010), of w = -ln(1 - x^2): below 5, and above.
_CENTER = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
    0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def _polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """Horner's scheme, the highest power first."""
    total = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def _lgamma(x: Any) -> Any:
    """ln |gamma(x)|; below 1/2 by reflection: gamma(x) gamma(1 - x) = pi / sin(pi x)."""
    reflected = x < 0.5
    z = torch.where(reflected, 1 - x, x) - 1
    series = _LANCZOS[0] + sum(c / (z + i) for i, c in enumerate(_LANCZOS[1:], 1))
    t = z + 7.5
    result = (z + 0.5) * torch.log(t) - t + torch.log(series) + 0.5 * math.log(2 * math.pi)
    sine = torch.sin(math.pi * (x - torch.floor(x)))  # only its size counts
    mirrored = math.log(math.pi) - torch.log(sine) - result
    return torch.where(x.isinf(), math.inf, torch.where(reflected, mirrored, result))


def _digamma(x: Any) -> Any:
    """The derivative of ln gamma(x): its asymptotic series at x + 6, and below 0 by reflection."""
    reflected = x < 0
    z = torch.where(reflected, 1 - x, x)
    steps = sum(1 / (z + i) for i in range(6))
    far = z + 6
    inverse = 1 / (far * far)
    series = inverse * _polynomial(_BERNOULLI[::-1], inverse)
    result = torch.log(far) - 0.5 / far - series - steps
    angle = math.pi * (x - torch.floor(x))
    mirrored = result - math.pi * torch.cos(angle) / torch.sin(angle)
    mirrored = torch.where(x == torch.floor(x), math.nan, mirrored)
    return torch.where(reflected, mirrored, result)


def _erfinv(x: Any) -> Any:
    w = -torch.log((1 - x) * (1 + x))
    center = _polynomial(_CENTER, w - 2.5)
    tail = _polynomial(_TAIL, torch.sqrt(w) - 3)
    inner = x * torch.where(w < 5, center, tail)
    return torch.where(x.abs() == 1, x * math.inf, inner)


def _wide(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """In float32, also of integers and of 16-bit floats."""

    def decompose(x: Any) -> Any:
        dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        return function(x.float()).to(dtype)

    return decompose


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _aten.lgamma.default: _wide(_lgamma),
    _aten.digamma.default: _wide(_digamma),
    _aten.erfinv.default: _wide(_erfinv),
}
