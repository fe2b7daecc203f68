"""A cost profile from a machine's committed results: ``python -m benchmarks.fit``.

The virtual device then runs the suites' own loops on the profile, so that what it predicts can
be laid beside what was measured.
"""
