"""Results from other people's machines: one file to send, checked before it is taken in.

``python -m benchmarks.contributions make MACHINE`` writes it, ``check FILE`` says whether it
can be taken, ``add FILE`` takes it into ``results/``. The file is data: it is parsed as JSON and
nothing else, none of its names becomes a path before it was matched, and no text that could mean
something to a page, a shell or a terminal passes. Checksums show that it was cut or edited on its
way; they are no signature, so the figures are held against each other as well.
"""
