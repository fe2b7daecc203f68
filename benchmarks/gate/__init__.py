"""The gate for a change: is one commit of the library slower than another?

``python -m benchmarks.gate --base main`` compares two commits, each in its own
environment and process, pair by pair. The parts, none of which needs torch but the
worker's:

- ``catalogue``: what is measured, and how much slower counts;
- ``builds``: an environment for a commit;
- ``worker``, ``probes``: the process that has one commit's library, and what it runs;
- ``dialogue``: how the gate speaks with a worker, with time limits;
- ``rounds``: who runs when;
- ``verdicts``: what the samples say; pure;
- ``table``: how it is shown;
- ``statuses``: what the command exits with, and that nothing else is taken for it.
"""
