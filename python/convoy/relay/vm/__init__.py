"""`relay.vm`: compiling and running modules that a graph executor cannot hold.

Modules with unknown sizes or control flow are compiled by TVM's own Relax pipeline, with TVM's own
kernels; all others are compiled as by `relay.build`. What TVM does not compile with unknown sizes
(sizes that depend on values, a size of 1 that broadcasts, recursion) is compiled when it runs, for
the sizes that occur: module `specialized`.
"""

from convoy.relay.vm.compiler import VMCompiler
from convoy.relay.vm.compiling import compile
from convoy.relay.vm.executable import Executable
from convoy.relay.vm.machine import VirtualMachine

__all__ = ["Executable", "VMCompiler", "VirtualMachine", "compile"]
