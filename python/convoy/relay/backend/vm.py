"""`relay.backend.vm`: the VM under its former path."""

from __future__ import annotations

from convoy.relay.vm import Executable, VirtualMachine, VMCompiler, compile

__all__ = ["Executable", "VMCompiler", "VirtualMachine", "compile"]
