"""Signatures of compiled modules, which prove who exported a file.

A signature is a small JSON file beside the module, ``network.so.sig``, with an Ed25519 signature
(RFC 8032) over the SHA-256 of the whole module. Keys are PEM files, as ``openssl genpkey
-algorithm ed25519`` and ``openssl pkey -pubout`` write them. Needs the package "cryptography".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidOption, LibraryMissing, UntrustedModule
from ..ir import fields as checks
from ..ir.sealed_file import read_sealed
from ..paths import install_command

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

FORMAT = 1
_CONTEXT = b"convoy module 1\0"  # separates modules from other data signed by the same key
_FIELDS: dict[str, checks.Check] = {
    "format": checks.integer(FORMAT, FORMAT),
    "algorithm": checks.one_of(("ed25519",)),
    "signature": checks.text(128),
}


def sign(path: str | os.PathLike[str], key: str | os.PathLike[str]) -> Path:
    """Sign a compiled module.

    Args:
        path: A module that ``export_library`` wrote.
        key: PEM file with an Ed25519 private key.

    Returns:
        The signature's file, the module's path with ``.sig`` after it.

    Raises:
        CorruptArtefact: The module is damaged.
        InvalidOption: The key cannot be read.
        LibraryMissing: The package "cryptography" is not installed.
    """
    private = _private_key(Path(key))
    signature = private.sign(_message(read_sealed(path)))
    data = {
        "format": FORMAT,
        "algorithm": "ed25519",
        "signature": base64.b64encode(signature).decode(),
    }
    target = _signature_file(path)
    target.write_text(json.dumps(data) + "\n", encoding="ascii")
    return target


def verify(
    path: str | os.PathLike[str], content: bytes, trusted: Iterable[str | os.PathLike[str]]
) -> None:
    """Check that one of the trusted keys signed a module.

    Args:
        path: The module's file; its signature is beside it, with ``.sig`` appended to the name.
        content: The file's content as read, which is verified because the file may change.
        trusted: PEM files with Ed25519 public keys.

    Raises:
        InvalidOption: A key cannot be read, or there is none.
        LibraryMissing: The package "cryptography" is not installed.
        UntrustedModule: The signature is missing, damaged, or by another key.
    """
    keys = [_public_key(Path(file)) for file in trusted]
    if not keys:
        raise InvalidOption("trusted=[]", "the files of one or more public keys")
    signature = _read_signature(_signature_file(path))
    message = _message(content)
    if not any(_signed_by(key, signature, message) for key in keys):
        raise UntrustedModule(
            f"{path}, which none of the {len(keys)} trusted keys signed",
            "a module and the signature that was made of it",
            "Do not load it, unless you know another way who made it.",
        )


def _signature_file(path: str | os.PathLike[str]) -> Path:
    return Path(f"{os.fspath(path)}.sig")


def _message(content: bytes) -> bytes:
    return _CONTEXT + hashlib.sha256(content).digest()


def _read_signature(file: Path) -> bytes:
    remedy = "Get the signature from where the module came from, or sign it: convoy sign."
    try:
        text = checks.read_bytes(file).decode("ascii")
        data = checks.parse_json(text, f"signature {file}", UntrustedModule)
        return checks.made(_decoded, data, _FIELDS, "signature", UntrustedModule, _FIELDS)
    except (OSError, UnicodeDecodeError, binascii.Error) as err:
        raise UntrustedModule(
            f"signature {file}, which cannot be read ({err})",
            "a file that convoy sign wrote",
            remedy,
        ) from None


def _decoded(signature: str, **others: object) -> bytes:
    return base64.b64decode(signature, validate=True)


def _signed_by(key: Ed25519PublicKey, signature: bytes, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _private_key(file: Path) -> Ed25519PrivateKey:
    _require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    expected = "a PEM file with an Ed25519 private key: openssl genpkey -algorithm ed25519"
    key = _loaded(file, lambda data: load_pem_private_key(data, password=None), expected)
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidOption(f"key {file} of type {type(key).__name__}", expected)
    return key


def _public_key(file: Path) -> Ed25519PublicKey:
    _require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    expected = "a PEM file with an Ed25519 public key: openssl pkey -in key.pem -pubout"
    key = _loaded(file, load_pem_public_key, expected)
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidOption(f"key {file} of type {type(key).__name__}", expected)
    return key


def _loaded(file: Path, load: Callable[[bytes], object], expected: str) -> object:
    try:
        return load(file.read_bytes())
    except OSError as err:
        raise InvalidOption(f"key {file} ({err.strerror})", expected) from None
    except (ValueError, TypeError) as err:  # another format, or a key with a password
        raise InvalidOption(f"key {file}, which cannot be read ({err})", expected) from None


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise LibraryMissing(
            'signatures without the package "cryptography"',
            "it installed",
            install_command("sign"),
        ) from None
