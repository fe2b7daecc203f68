"""What runs the suites: environments, machine names, modes, progress, commands.

Nothing here measures. asv imports every module below ``benchmarks`` when it looks
for benchmarks, so importing one has no effects and needs no GPU.
"""
