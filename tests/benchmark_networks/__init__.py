"""Networks of the benchmarks that no package brings, built on Relax."""
