"""Names of the inputs of compiled modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import convoy  # noqa: E402
from convoy import InferenceSession  # noqa: E402


class Nested(torch.nn.Module):  # type: ignore[name-defined]
    """Takes a dictionary, a list inside it, a keyword, and what its own parameter is called."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 1)

    def forward(self, batch: Any, scale: Any = None, *, p_function_conv_weight: Any = None) -> Any:
        y = self.conv(batch["image"]) * batch["sizes"][1] + batch["sizes"][0]
        return y * scale + p_function_conv_weight, batch["sizes"][1]


def test_exported_inputs_have_the_names_of_forward(tmp_path: Path) -> None:
    net = Nested().eval()
    image, sizes = torch.randn(1, 3, 4, 4), [torch.tensor(2.0), torch.tensor(3.0)]
    last = {"scale": torch.tensor(5.0), "p_function_conv_weight": torch.tensor(7.0)}
    fast = convoy.compile(net, ({"image": image, "sizes": sizes},), last)
    fast.export(tmp_path / "net.so")
    session = InferenceSession(tmp_path / "net.so")
    names = [given.name for given in session.get_inputs()]
    assert names[:4] == ["batch_image", "batch_sizes_0", "batch_sizes_1", "scale"]
    assert len(set(names)) == 5 and names[4].startswith("p_function_conv_weight")
    tensors = [image, *sizes, *last.values()]
    feeds = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
    got, same = session.run(None, dict(reversed(feeds.items())))
    with torch.no_grad():
        expected, _ = net({"image": image, "sizes": sizes}, **last)
    torch.testing.assert_close(torch.from_numpy(got), expected, rtol=1e-5, atol=1e-5)
    assert same == 3


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda *images: images[0] + images[1], ["images_0", "images_1"]),
        (lambda input, other: input - other, ["input", "other"]),
        (lambda x_1, x: torch.fft.fft(x_1).real - x, ["x_1", "x"]),  # traced again for its numbers
    ],
)
def test_names_of_functions(function: Any, names: list[str]) -> None:
    fast = convoy.compile(function, (torch.ones(4), torch.ones(4)))
    assert [given.name for given in fast.built.meta.inputs] == names


def test_equal_programs_with_other_names_are_built_apart() -> None:
    """The cache of builds holds the names, too."""
    for function, name in ((lambda one: one * 2, "one"), (lambda two: two * 2, "two")):
        assert convoy.compile(function, torch.ones(4)).built.meta.inputs[0].name == name
