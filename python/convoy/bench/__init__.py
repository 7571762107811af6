"""Benchmark a model against other systems: latency, throughput, memory, and time by layer."""
