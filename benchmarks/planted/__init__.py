"""A test of the tracking: planted regressions must be found, unchanged commits must not.

``python -m benchmarks.planted`` works in a scratch clone and changes nothing else. Its
parts: ``plants`` (what is planted), ``branch`` (the commits), ``flagged`` (what asv's
regressions say of them), ``command``.
"""
