"""Bytes on disk: model files, checkpoints, atomic writes. A file is a class name, plain data and arrays;
which module has the class is said in the top `__init__.py`. May import `numerics` and `model`.
"""
