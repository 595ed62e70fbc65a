"""Bytes on disk: model files, checkpoints, atomic writes. A file is a class name, plain data and arrays;
the top `__init__.py` has the table from class to module. May import `numerics` and `model`.
"""
