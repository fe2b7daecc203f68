"""Pictures of the gains: ``python -m benchmarks.pictures``.

Each module draws one picture of plain numbers and says in one sentence what it shows.
asv imports every module of the suites, on machines without matplotlib too, so only
:mod:`benchmarks.pictures.look` imports it, and only when something is drawn.
"""
