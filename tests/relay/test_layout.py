"""Parsing layouts, and shapes in them."""

from __future__ import annotations

import pytest

from convoy.errors import ConvoyError
from convoy.relay.layout import layout


class TestLayouts:
    def test_blocks(self) -> None:
        found = layout("NCHW16c", "NCHW")
        assert found.to_axes((1, 4, 5, 6, 16), "NHWC") == (1, 5, 6, 64)
        assert found.from_axes((1, 5, 6, 64), "NHWC") == (1, 4, 5, 6, 16)
        assert layout("OIHW4i8o").factor("O") == 8

    @pytest.mark.parametrize("name", ["", "NCHX", "NCH", "NCHW4x", "NCHWW", "nchw", "NCHW0c", "N!"])
    def test_refused(self, name: str) -> None:
        with pytest.raises(ConvoyError):
            layout(name, "NCHW")
