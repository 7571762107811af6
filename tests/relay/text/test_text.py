"""The text format: literals, scopes, sharing, comments, errors."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import relay
from convoy.errors import ConvoyError, RelaySyntaxError, RelayTypeError, UnsupportedOp
from convoy.relay.text.literals import BadNumber, as_constant, parse_number

from ..running import HEAD

X = "%x: Tensor[(1, 4, 8, 8), float32]"


def body(text: str, params: str = X) -> relay.Expr:
    return relay.parse(f"{HEAD}def @main({params}) {{ {text} }}")["main"].body


class TestNumbers:
    @pytest.mark.parametrize(
        ("text", "value", "dtype"),
        [
            ("1", 1, "int32"),
            ("-1", -1, "int32"),
            ("--1", 1, "int32"),
            ("2147483648", 2**31, "int64"),
            ("-2147483648", -(2**31), "int32"),
            ("1i16", 1, "int16"),
            ("7i64", 7, "int64"),
            ("1f", 1.0, "float32"),
            ("1.5f16", 1.5, "float16"),
            ("1e-05f", 1e-5, "float32"),
            ("2.5e+3f64", 2500.0, "float64"),
            ("inff", float("inf"), "float32"),
            ("-inff", float("-inf"), "float32"),
        ],
    )
    def test_value_and_type(self, text: str, value: float, dtype: str) -> None:
        assert parse_number(text) == (value, dtype)

    @pytest.mark.parametrize("text", ["1.5", "3i8", "3u8", "1f8", "3-1", "1e5", "9" * 30, "1.2.3f"])
    def test_refused(self, text: str) -> None:
        with pytest.raises(BadNumber):
            parse_number(text)

    @pytest.mark.parametrize(
        ("value", "dtype", "text"),
        [
            (0.5, "float32", "0.5f"),
            (1e-5, "float32", "1e-05f"),
            (0.1, "float32", "0.1f"),
            (0.1, "float64", "0.1f64"),
            (1e30, "float32", "1e+30f"),
            (100000, "float32", "100000f"),
            (2**20, "float32", "1.048576e+06f"),
            (1 / 3, "float32", "0.33333334f"),
            (1 / 3, "float16", "0.333252f16"),
            (float("-inf"), "float64", "-inff64"),
            (-7, "int64", "-7i64"),
        ],
    )
    def test_prints_so_that_nothing_is_lost(self, value: float, dtype: str, text: str) -> None:
        constant = relay.const(value, dtype)
        assert constant.astext().splitlines()[1] == text
        assert as_constant(*parse_number(text)) == constant.value

    def test_int64_attributes_stay_wide(self) -> None:
        call = body("reshape(%x, newshape=[1i64, -1])")
        assert "newshape=[1i64, -1]" in relay.astext(call)


class TestScopes:
    def test_graph_variables_share(self) -> None:
        call = body("%0 = nn.relu(%x); add(%0, %0)")
        assert call.args[0] is call.args[1]

    def test_first_graph_binding_wins(self) -> None:
        call = body("%0 = nn.relu(%x); %0 = add(%0, %0); %0")
        assert call.op.name == "nn.relu"

    def test_let_of_a_parameter_leaves_the_parameter(self) -> None:
        let = body("let %x = nn.relu(%x); %x")
        assert let.body is let.value.args[0]

    def test_let_shadows_an_earlier_let(self) -> None:
        let = body("let %a = nn.relu(%x); let %a = negative(%x); %a")
        assert let.body.body is let.body.var

    def test_inner_names_end_with_their_block(self) -> None:
        with pytest.raises(RelaySyntaxError, match="%a is not defined"):
            body("add((let %a = nn.relu(%x); %a), %a)")

    def test_numbers_are_those_of_one_definition(self) -> None:
        mod = relay.parse(
            f"{HEAD}def @f(%a: float32) {{ %0 = abs(%a); %0 }}\n"
            "def @main(%b: float32) { %0 = exp(%b); @f(%0) }"
        )
        assert mod["main"].body.args[0].op.name == "exp"

    def test_dotted_parameters(self) -> None:
        call = body("add(%input.1, %onnx::w)", "%input.1: float32, %onnx::w: float32")
        assert [a.name_hint for a in call.args] == ["input.1", "onnx::w"]

    def test_slash_is_a_letter(self) -> None:
        call = body("add(%conv/kernel, %a)", "%conv/kernel: float32, %a: float32")
        assert call.args[0].name_hint == "conv/kernel"

    def test_division(self) -> None:
        assert body("%a / %b", "%a: float32, %b: float32").op.name == "divide"

    def test_precedence(self) -> None:
        call = body("%a + %b * %a < %b", "%a: float32, %b: float32")
        assert call.op.name == "less"
        assert call.args[0].args[1].op.name == "multiply"


class TestComments:
    def test_nested_and_line_comments(self) -> None:
        assert body("/* a /* b */ c */ nn.relu(%x) // rest }\n").op.name == "nn.relu"

    def test_not_closed(self) -> None:
        with pytest.raises(RelaySyntaxError, match="not closed"):
            body("nn.relu(%x) /* ")

    def test_slashes_in_strings_and_names(self) -> None:
        text = 'fn (%y: float32, name="a//b") { %y }'
        assert body(text, "%a: float32").attrs == {"name": "a//b"}

    def test_windows_line_ends(self) -> None:
        text = f"{HEAD}def @main(%x: float32) {{\n  abs(%x) // c\n}}\n".replace("\n", "\r\n")
        assert relay.parse(text)["main"].body.op.name == "abs"


class TestMetadata:
    def test_constants_survive(self) -> None:
        value = np.arange(6, dtype="int8").reshape(2, 3)
        x = relay.var("x", shape=(2, 3), dtype="int8")
        mod = relay.IRModule.from_expr(relay.Function([x], x + relay.const(value)))
        again = relay.parse(relay.transform.InferType()(mod).astext())
        assert relay.structural_equal(mod, again)
        np.testing.assert_array_equal(again["main"].body.args[1].value, value)

    def test_without_the_section(self) -> None:
        with pytest.raises(RelaySyntaxError, match="no metadata"):
            body("add(%x, meta[relay.Constant][0])")

    def test_from_a_table(self) -> None:
        text = f"{HEAD}def @main({X}) {{ add(%x, meta[relay.Constant][0]) }}"
        table = {"relay.Constant": [relay.const(2.0)]}
        assert relay.parse(text, "t", None, table)["main"].body.args[1].value == 2

    def test_split_writes_boxed_integers(self) -> None:
        tuple_value = body("split(%x, indices_or_sections=[1, 3], axis=1)")
        text = relay.IRModule.from_expr(tuple_value).astext()
        assert "meta[runtime.BoxInt][1]" in text
        assert "runtime.BoxInt" in text.partition("#[metadata]")[2]


class TestPolymorphic:
    def test_type_parameters(self) -> None:
        text = f"{HEAD}def @id[A](%x: A) -> A {{ %x }}\ndef @main(%y: float32) {{ @id(%y) }}"
        assert str(relay.parse(text)["main"].checked_type.ret_type) == "float32"


class TestErrors:
    """Each has its class, the place, and the words that help."""

    @pytest.mark.parametrize(
        ("text", "error", "words"),
        [
            ("nn.rellu(%x)", UnsupportedOp, "'nn.relu'"),
            ("relu(%x)", UnsupportedOp, "'nn.relu'"),
            ("nn.conv2d(%x, %x, pading=[1])", RelayTypeError, "'padding'"),
            ("nn.conv2d(%x, %x, padding=1)", RelayTypeError, "an array"),
            ("nn.dense(%x, %x)", RelayTypeError, "'units'"),
            ("add(%x, 1)", RelayTypeError, "one dtype"),
            ("%x -1f", RelaySyntaxError, "space behind the minus"),
            ("add(%x, 1.5)", RelaySyntaxError, "suffix f: 1.5f"),
            ("cast(%x, dtype='int8')", RelaySyntaxError, "double quotes"),
            ("add(%y, %x)", RelaySyntaxError, "%y is not defined"),
            ("%0.0.1", RelaySyntaxError, "(%0.0).1"),
            ("@f(%x)", RelaySyntaxError, "@f is not defined"),
            ("match (%x) { Some(%y) => %y }", RelaySyntaxError, "Some, which no type has"),
            ("ref(%x, %x)", RelaySyntaxError, "ref of 2 values"),
            ('nn.conv2d(%x, %x, data_layout="NCXX")', ConvoyError, "NCXX"),
            (
                "nn.sparse_conv2d(%x, %x, %x, %x)",
                UnsupportedOp,
                "sparse_conv2d is a Relay operator",
            ),
        ],
    )
    def test_message(self, text: str, error: type[ConvoyError], words: str) -> None:
        with pytest.raises(error) as caught:
            relay.parse(f"{HEAD}def @main({X}) {{\n  {text}\n}}", "net.relay")
        message = str(caught.value)
        assert words in message
        assert message.startswith("net.relay:3:")
        assert f"  3 |   {text}" in message

    def test_caret_stands_under_the_place(self) -> None:
        with pytest.raises(UnsupportedOp) as caught:
            relay.parse(f"{HEAD}def @main({X}) {{\n  add(%x, nn.rellu(%x))\n}}")
        line, caret = str(caught.value).splitlines()[-2:]
        assert line[caret.index("^") :].startswith("nn.rellu")

    def test_long_lines_are_cut(self) -> None:
        params = ", ".join(f"%p{i}: float32" for i in range(300))
        with pytest.raises(RelaySyntaxError) as caught:
            relay.parse(f"{HEAD}def @main({params}) {{ %q }}")
        line, caret = str(caught.value).splitlines()[-2:]
        assert len(line) < 200
        assert line[caret.index("^") :].startswith("%q")

    def test_version(self) -> None:
        with pytest.raises(RelaySyntaxError, match="in front"):
            relay.parse("def @main(%x: float32) { %x }")
        with pytest.raises(RelaySyntaxError, match=r"0\.0\.4"):
            relay.parse('#[version = "0.0.4"]\ndef @main(%x: float32) { %x }')

    def test_not_text(self) -> None:
        with pytest.raises(RelaySyntaxError):
            relay.parse(b"\xff\xfe")
        with pytest.raises(RelaySyntaxError):
            relay.parse(None)


def test_attributes_with_dots_come_last() -> None:
    """As TVM's reader needs it."""
    x = relay.var("x", shape=(2,))
    function = relay.Function([x], x, attrs={"relay.reshape_only": 1, "Primitive": 1})
    head = function.astext().splitlines()[1]
    assert head.startswith("fn (%x: Tensor[(2), float32], Primitive=1, relay.reshape_only=1)")


def test_variables_outside_of_their_scope_are_printed_as_free() -> None:
    """TVM writes such a program as well; `x` is a parameter and free at once."""
    x = relay.var("x", shape=(2,))
    assert "free_var %x: Tensor[(2), float32];" in str(relay.Function([x], x)(x))
