"""The site of the results: a start page in front of asv's graphs, with no internet needed.

asv imports every module of this folder, so nothing here runs on import and only the
standard library, asv and the report's own modules are imported.
"""
