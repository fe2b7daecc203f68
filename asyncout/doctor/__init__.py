"""What can this box do? ``python -m asyncout.doctor`` looks, and recommends a policy.

Everything that it predicts is modelled on the virtual device and says so. The suites under
``benchmarks/`` are the measurement; they share no probe with this package, only the plain
facts of a machine (:mod:`asyncout.doctor.facts`). Nothing else in the library imports it.
"""
