"""The command ``convoy sign``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import say


def sign(
    module: Annotated[Path, typer.Argument(help="A module written by convoy build.")],
    key: Annotated[
        Path,
        typer.Option(help="Ed25519 private key (PEM): openssl genpkey -algorithm ed25519."),
    ],
) -> None:
    """Sign a compiled module, so that others can verify its origin before loading it."""
    from ..runtime.signature import sign as sign_module

    say(f"wrote {sign_module(module, key)}")
