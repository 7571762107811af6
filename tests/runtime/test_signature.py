"""Signed modules: who made a file is checked on the bytes that are loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import convoy
from convoy import relay
from convoy.cli.main import app
from convoy.errors import CorruptArtefact, InvalidOption, UntrustedModule
from convoy.runtime.signature import sign

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32]) { add(%x, SCALEf) }"""


def key_pair(folder: Path, name: str) -> tuple[Path, Path]:
    from cryptography.hazmat.primitives import serialization as form

    private = ed25519.Ed25519PrivateKey.generate()
    secret, public = folder / f"{name}.pem", folder / f"{name}.pub"
    secret.write_bytes(
        private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    )
    public.write_bytes(
        private.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    )
    return secret, public


def network(path: Path, addend: int) -> Path:
    module = relay.to_relax(relay.parse(TEXT.replace("SCALE", str(addend))), {})
    convoy.build(module, "llvm").export_library(path)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signed")
    return network(folder / "one.so", 1), network(folder / "two.so", 2), folder


@pytest.fixture
def signed(made, tmp_path):
    """A signed module, the trusted key's file, and another network."""
    shutil.copy(made[0], tmp_path / "net.so")
    secret, public = key_pair(tmp_path, "ours")
    sign(tmp_path / "net.so", secret)
    return tmp_path / "net.so", public, made[1]


def test_one_of_several_trusted_keys_signed(signed, tmp_path):
    path, public, _ = signed
    _, other = key_pair(tmp_path, "other")
    (y,) = convoy.load(path, trusted=[other, public]).session()(np.zeros((2, 3), "float32"))
    np.testing.assert_array_equal(y, np.ones((2, 3)))


def test_a_replaced_module_is_refused(signed):
    path, public, other = signed
    shutil.copy(other, path)  # whole and sealed, by someone else
    convoy.load(path)
    with pytest.raises(UntrustedModule, match="none of the 1 trusted keys signed"):
        convoy.load(path, trusted=[public])


def test_another_key_is_refused(signed, tmp_path):
    path, _, _ = signed
    with pytest.raises(UntrustedModule):
        convoy.load(path, trusted=[key_pair(tmp_path, "other")[1]])


def test_a_missing_signature_is_refused(signed):
    path, public, other = signed
    with pytest.raises(UntrustedModule, match=r"two\.so\.sig"):
        convoy.load(other, trusted=[public])
    convoy.load(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: "[" * 10000,
        lambda text: text[:-20],
        lambda text: text.replace("ed25519", "none"),
        lambda text: json.dumps({**json.loads(text), "signature": ""}),
        lambda text: json.dumps({**json.loads(text), "signature": "AAAA" * 21 + "AA=="}),
        lambda text: json.dumps({**json.loads(text), "signature": 1}),
        lambda text: json.dumps({**json.loads(text), "format": 2}),
        lambda text: "\x00\xff",
    ],
)
def test_a_damaged_signature_is_refused(signed, damage):
    path, public, _ = signed
    file = Path(f"{path}.sig")
    file.write_text(damage(file.read_text()), encoding="latin-1")
    with pytest.raises(UntrustedModule):
        convoy.load(path, trusted=[public])


def test_damage_is_told_before_trust(signed):
    path, public, _ = signed
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CorruptArtefact):
        convoy.load(path, trusted=[public])


def test_keys_that_are_none(signed, tmp_path):
    path, public, _ = signed
    for wrong in (tmp_path / "missing.pem", path, Path(str(public).replace(".pub", ".pem"))):
        with pytest.raises(InvalidOption, match="Ed25519 public key"):
            convoy.load(path, trusted=[wrong])
    with pytest.raises(InvalidOption, match="Ed25519 private key"):
        sign(path, public)
    with pytest.raises(InvalidOption, match=r"trusted=\[\]"):
        convoy.load(path, trusted=[])


def test_command_line(made, tmp_path):
    path = shutil.copy(made[0], tmp_path / "net.so")
    secret, public = key_pair(tmp_path, "ours")
    _, other = key_pair(tmp_path, "other")
    call = CliRunner().invoke
    assert call(app, ["sign", str(path), "--key", str(secret)]).exit_code == 0
    assert call(app, ["run", str(path), "--trusted", str(public)]).exit_code == 0
    refused = call(app, ["run", str(path), "--trusted", str(other)])
    assert isinstance(refused.exception, UntrustedModule)
