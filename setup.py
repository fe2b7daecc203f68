"""Compiles the hot path's loops. Everything else about the package stands in pyproject.toml.

Optional: where there is no compiler the package installs without them, and the same
loops run in Python (see asyncout/hot.py).
"""

from pathlib import Path

from setuptools import Extension, setup

SOURCES = Path("asyncout") / "csrc"

setup(
    ext_modules=[
        Extension(
            "asyncout._hot",
            sorted(str(path) for path in SOURCES.glob("*.c")),
            depends=[str(path) for path in SOURCES.glob("*.h")],
            optional=True,
        )
    ]
)
