"""Benchmark a model against others: latency, throughput, memory, and where the time goes."""
