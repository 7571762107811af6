"""Convolutions one by one, in all directions, beside their peers: see bench_resnet50_dgrad.py."""
