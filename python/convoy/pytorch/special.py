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
#: ln(erfc(x) / t) + x^2 as a polynomial of t = 1 / (1 + x / 2).
_ERFC = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418,
    0.37409196, 1.00002368, -1.26551223,
)  # fmt: skip
#: Modified Bessel functions of order 0 and 1, Abramowitz and Stegun 9.8.1 to 9.8.4: polynomials of
#: (x / 3.75)^2, and from 3.75 on of 3.75 / x, times exp(x) / sqrt(x).
_BESSEL = {
    0: (
        (0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0),
        (
            0.00392377, -0.01647633, 0.02635537, -0.02057706, 0.00916281, -0.00157565, 0.00225319,
            0.01328592, 0.39894228,
        ),
    ),
    1: (
        (0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5),
        (
            -0.00420059, 0.01787654, -0.02895312, 0.02282967, -0.01031555, 0.00163801, -0.00362018,
            -0.03988024, 0.39894228,
        ),
    ),
}  # fmt: skip


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
    sine = torch.sin(math.pi * (x - torch.round(x)).abs())  # only its size counts
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
    angle = math.pi * (x - torch.round(x))
    mirrored = result - math.pi * torch.cos(angle) / torch.sin(angle)
    mirrored = torch.where(x == torch.floor(x), math.nan, mirrored)
    return torch.where(reflected, mirrored, result)


def _erfinv(x: Any) -> Any:
    w = -torch.log((1 - x) * (1 + x))
    center = _polynomial(_CENTER, w - 2.5)
    tail = _polynomial(_TAIL, torch.sqrt(w) - 3)
    inner = x * torch.where(w < 5, center, tail)
    return torch.where(x.abs() == 1, x * math.inf, inner)


def _erfcx(x: Any) -> Any:
    """exp(x^2) erfc(x), by a Chebyshev fit: Press et al., "Numerical Recipes" (1992), 6.2."""
    t = 1 / (1 + 0.5 * x.abs())
    scaled = t * torch.exp(_polynomial(_ERFC, t))
    return torch.where(x < 0, 2 * torch.exp(x * x) - scaled, scaled)


def _erfc(x: Any) -> Any:
    """1 - erf(x), whose digits are lost where erf(x) is near 1."""
    t = 1 / (1 + 0.5 * x.abs())
    tail = t * torch.exp(_polynomial(_ERFC, t) - x * x)
    return torch.where(x < 0, 2 - tail, tail)


def _hypot(a: Any, b: Any) -> Any:
    """The length of a vector, whose square may not be a number."""
    a, b = a.abs(), b.abs()
    longer = torch.maximum(a, b)
    ratio = torch.minimum(a, b) / torch.where(longer == 0, 1.0, longer)
    infinite = a.isinf() | b.isinf()
    return torch.where(infinite, math.inf, longer * torch.sqrt(1 + ratio * ratio))


def _log1p(x: Any) -> Any:
    """ln(1 + x), near zero by the series of 2 artanh(x / (2 + x))."""
    near = x.clamp(-0.4, 0.4)
    part = near / (2 + near)
    series = 2 * part * _polynomial((1 / 11, 1 / 9, 1 / 7, 1 / 5, 1 / 3, 1.0), part * part)
    return torch.where(x.abs() < 0.4, series, torch.log(1 + x))


def _atanh(x: Any) -> Any:
    size = x.abs()
    result = 0.5 * _log1p(2 * size / (1 - size))
    return torch.where(x < 0, -result, result)


def _expm1(x: Any) -> Any:
    """e^x - 1, near zero by its series."""
    near = x.clamp(-0.3, 0.3)
    series = near * _polynomial((1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0), near)
    return torch.where(x.abs() < 0.3, series, torch.exp(x) - 1)


def _bessel(order: int, scaled: bool = False) -> Callable[[Any], Any]:
    """The modified Bessel function of order 0 or 1; scaled it is multiplied by exp(-|x|)."""
    center, tail = _BESSEL[order]

    def function(x: Any) -> Any:
        size = x.abs()
        near, far = size.clamp(max=3.75) / 3.75, 3.75 / size.clamp(min=3.75)
        below = _polynomial(center, near * near)
        above = _polynomial(tail, far) * torch.rsqrt(size.clamp(min=3.75))
        if scaled:
            below = below * torch.exp(-size)
        else:  # the exponential may be infinite where the product is not
            root = torch.exp(size / 2)
            above = above * root * root
        if order:
            below, above = below * x, torch.where(x < 0, -above, above)
        return torch.where(size < 3.75, below, above)

    return function


def _fmod(x: Any, y: Any) -> Any:
    """Exact in float32: a quotient that is rounded to 16 bits may be another integer."""
    dtype = torch.result_type(x, y)
    if dtype.itemsize != 2 or not dtype.is_floating_point:
        return NotImplemented
    return torch.fmod(x.float(), _divisor(y, dtype).float()).to(dtype)


def _remainder(x: Any, y: Any) -> Any:
    """Of the sign of the divisor. ``x - floor(x / y) * y`` has the rounding errors of x, which may
    be larger than y."""
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point:
        return NotImplemented
    wide = torch.promote_types(dtype, torch.float32)
    x, y = x.to(wide), _divisor(y, dtype).to(wide)
    rest = torch.fmod(x, y)
    return torch.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest).to(dtype)


def _floor_divide(x: Any, y: Any) -> Any:
    """Of the exact quotient: 1 // 0.1 is 9, as 0.1 is rounded up. Powers of two divide exactly."""
    dtype = torch.result_type(x, y)
    exact = not isinstance(y, torch.Tensor) and y and abs(math.frexp(y)[0]) == 0.5
    if not dtype.is_floating_point or exact:
        return NotImplemented
    wide = torch.promote_types(dtype, torch.float32)
    y = y.to(wide) if isinstance(y, torch.Tensor) else torch.full((), y, dtype=wide)
    x = x.to(wide) if isinstance(x, torch.Tensor) else torch.full_like(y, x)
    rest = torch.fmod(x, y)
    below = (torch.sign(rest) * torch.sign(y) < 0).to(wide)
    quotient = torch.round((x - rest) / y) - below
    return torch.where(y == 0, x / y, quotient).to(dtype)


def _rounded_quotient(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    return _floor_divide(x, y) if rounding_mode == "floor" else NotImplemented


def _divisor(y: Any, dtype: torch.dtype) -> Any:
    """A tensor, or a number as PyTorch rounds it."""
    return y if isinstance(y, torch.Tensor) else torch.full((), y, dtype=dtype)


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """In float32, also of integers and of 16-bit floats."""

    def decompose(*operands: Any) -> Any:
        dtype = torch.result_type(operands[0], operands[-1])
        dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
        wide = torch.promote_types(dtype, torch.float32)
        return function(*(x.to(wide) for x in operands)).to(dtype)

    return decompose


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _aten.lgamma.default: _wide(_lgamma),
    _aten.special_i0e.default: _wide(_bessel(0, scaled=True)),
    _aten.special_i1e.default: _wide(_bessel(1, scaled=True)),
    **dict.fromkeys(
        (_aten.i0.default, _aten.special_modified_bessel_i0.default), _wide(_bessel(0))
    ),
    **dict.fromkeys(
        (_aten.special_i1.default, _aten.special_modified_bessel_i1.default), _wide(_bessel(1))
    ),
    _aten.digamma.default: _wide(_digamma),
    _aten.erfinv.default: _wide(_erfinv),
    _aten.log1p.default: _wide(_log1p),
    _aten.expm1.default: _wide(_expm1),
    **dict.fromkeys((_aten.fmod.Tensor, _aten.fmod.Scalar), _fmod),
    **dict.fromkeys((_aten.remainder.Tensor, _aten.remainder.Scalar), _remainder),
    _aten.atanh.default: _wide(_atanh),
    _aten.hypot.default: _wide(_hypot),
    _aten.erfc.default: _wide(_erfc),
    _aten.special_erfcx.default: _wide(_erfcx),
    **dict.fromkeys((_aten.floor_divide.default, _aten.floor_divide.Scalar), _floor_divide),
    **dict.fromkeys((_aten.div.Tensor_mode, _aten.div.Scalar_mode), _rounded_quotient),
    _aten.exp2.default: _wide(lambda x: torch.exp(x * math.log(2))),
}
