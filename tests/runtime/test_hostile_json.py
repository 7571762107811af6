"""Module specifications that nest too deep are refused before they are parsed."""

import pytest

from convoy import errors
from convoy.runtime.library import function


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"a":' * 100_000, '{"functions":' * 100_000, '{"a":"]]]"' + ',"b":[' * 70],
)
def test_deep_json_is_refused(text) -> None:
    with pytest.raises((errors.ConvoyError, RuntimeError, ValueError), match="nested"):
        function("module.create")(text, {})


def test_brackets_in_text_do_not_count() -> None:
    spec = '{"format":1,"device":{"arch":0},"functions":[],"meta":"%s"}' % ('\\"[{' * 1000)
    assert function("module.create")(spec, {}).kind == "convoy"
