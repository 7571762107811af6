"""In place of PyTorch, which tvm_ffi imports wherever it is there, in processes of tests that do
without it: to import it takes longer than most of what these do."""

raise ImportError("tests' own processes do without PyTorch", name="torch")
