"""Benchmarks: ``python -m benchmarks.NAME [--quick] [--json]``. Ratios within one run; answers are equal first."""
