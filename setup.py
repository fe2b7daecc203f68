"""Compiles the hot path's loops. Everything else about the package stands in pyproject.toml.

Optional: where there is no compiler the package installs without them, and the same
loops run in Python (asyncout/hot.py).
"""

from setuptools import Extension, setup

setup(ext_modules=[Extension("asyncout._hot", ["asyncout/_hot.c"], optional=True)])
