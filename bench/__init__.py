"""Benchmarks: one module each, with ``run() -> {"figures": …, "baseline": …}``."""
