"""Complex numbers and Fourier transforms against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import convoy
from convoy.errors import UnsupportedOp

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
fft = torch.fft
WINDOW = torch.hann_window(16)


def rotated(x: Any) -> Any:
    """Rotary positions with complex numbers."""
    angles = torch.polar(torch.ones(5, 3), torch.arange(15.0).reshape(5, 3))
    pairs = torch.view_as_complex(x[..., :6].reshape(2, 4, 5, 3, 2).contiguous())
    return torch.view_as_real(pairs * angles).flatten(-2)


def of_numbers(z: Any) -> list[Any]:
    """Layers and selections of complex numbers, (3, 5, 7)."""
    pad, weight = torch.nn.functional.pad, z[0, :2]
    return [
        pad(z, (1, 2)), pad(z, (0, 1), value=2.0), pad(z, (1, 1), mode="reflect"), z**3, z.sqrt(),
        z.pow(1.5), torch.nn.functional.linear(z, weight), torch.sgn(z), z.cumsum(-1), z.tril(),
        torch.addmm(z[0, :2, :2], weight, weight.mT, alpha=2), z.diagonal(dim1=1, dim2=2),
        torch.zeros_like(z).index_add(1, torch.tensor([0, 2, 2]), z[:, :3]),
    ]  # fmt: skip


def spectrum(x: Any) -> Any:
    """A layer of a Fourier neural operator: products of low frequencies."""
    found = fft.rfft2(x)
    out = torch.zeros(2, 3, 5, 4, dtype=torch.cfloat)
    weight = torch.complex(x[:, :3, 0, 0].mT, x[:, :3, 0, 1].mT * 2)
    out[:, :, :2, :3] = torch.einsum("bixy,oj->bjxy", found[:, :3, :2, :3], weight @ weight.mT)
    return fft.irfft2(out, s=x.shape[-2:])


CASES: dict[str, Callable[[Any], Any]] = {
    "transforms": lambda x: (
        fft.fft(x).abs(), fft.fft2(x).real, fft.fftn(x, dim=(0, 2)).imag, fft.ifft(fft.fft(x)).real,
        fft.irfft2(fft.rfft2(x, norm="ortho"), s=(5, 7)), fft.irfft(fft.rfft(x, n=8), n=6),
        fft.hfft(torch.complex(x, x)), torch.view_as_real(fft.ihfft(x).resolve_conj()),
        fft.ifft2(x).real,
        fft.fftshift(fft.fft(x + 1, dim=1), dim=1)[:, :2].imag,
        fft.irfft(fft.rfft(x, dim=1), dim=1),
    ),
    "arithmetic": lambda x: (
        (torch.complex(x, 2 * x) / torch.complex(x + 9, x)).imag, torch.complex(x, -x).exp().real,
        (torch.complex(x, x) @ torch.complex(x, -x).mH).imag, (x * 1j + 2).abs(),
        torch.cat([torch.complex(x, x), x + 0j], 1).angle(), torch.complex(x, x + 3).log().imag,
        torch.view_as_real(torch.where(x > 0, torch.complex(x, x),
        x.to(torch.cfloat)).conj().resolve_conj()),
        (1j / torch.complex(x + 9, x)).real, torch.complex(x, x).sum(1).imag,
        [part.imag for part in torch.complex(x, x).unbind(1)][2],
    ),
    "layers": lambda x: (
        [torch.view_as_real(part) for part in of_numbers(torch.complex(x, x.flip(1))[0, :3])],
        torch.linalg.vector_norm(torch.complex(x, 2 * x), dim=1), torch.complex(x, x + 1).var(1),
        (torch.complex(x, x) == torch.complex(x, x.abs())).float(),
    ),
    "short time": lambda x: (
        torch.stft(x.flatten(), 16, 4, window=WINDOW, return_complex=True).abs(),
        torch.istft(torch.stft(x.flatten(), 16, 4, window=WINDOW, return_complex=True), 16, 4,
        window=WINDOW),
    ),
    "networks": lambda x: (rotated(x), spectrum(x)),
}  # fmt: skip


def sample() -> Any:
    return torch.randn(2, 4, 5, 7, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str) -> None:
    x, function = sample(), CASES[name]
    for got, want in zip(convoy.compile(function, x, cache=False)(x), function(x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_angles_of_real_elements_are_not_on_the_cut() -> None:
    """The first and the last element of a spectrum are real: their angles are 0 or pi."""
    x = sample()[..., :4]

    def angles(x: Any) -> Any:
        return fft.rfft(x).angle()[..., ::2]

    torch.testing.assert_close(convoy.compile(angles, x, cache=False)(x), angles(x))


def test_complex_buffers() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turns", torch.polar(torch.ones(7), torch.arange(7.0)))

        def forward(self, x: Any) -> Any:
            return (x * self.turns).imag

    x = sample()
    torch.testing.assert_close(convoy.compile(Net(), x, cache=False)(x), Net()(x))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: torch.complex(x, x), "complex results"),
        (lambda x: torch.complex(x, x).tan().real, r"complex numbers in the operator aten\.tan"),
        (lambda x: fft.fft(x.repeat(1, 1, 1, 999)).real, "Fourier transform of 6993 elements"),
    ],
)
def test_what_is_refused(function: Any, message: str) -> None:
    with pytest.raises(UnsupportedOp, match=message):
        convoy.compile(function, sample(), cache=False)


def test_complex_inputs_are_refused() -> None:
    with pytest.raises(UnsupportedOp, match=r"complex inputs.*view_as_complex"):
        convoy.compile(lambda z: (z * z.conj()).real, sample().to(torch.cfloat), cache=False)
