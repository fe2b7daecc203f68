"""Both benchmark suites, what they measure with, and the report of the gains.

asv takes this folder from the working tree and the library from the commit that
is measured, so nothing here may expect more of the library than an older commit
has. This file runs in every process of either suite: standard library only.
"""

from benchmarks.runner import guard

guard.refuse_foreign_copy()
