"""Autotuning: propose the candidates of a workload, choose some, measure and record them."""
