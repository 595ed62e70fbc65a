"""Fuzzing: random and mutated input against what must hold for all of it.

A harness is a module with CASES, a hypothesis strategy, `check(case)`, which raises if something does not
hold, and FOUND, the cases that once did not; these come first in every run. `python -m fuzz` runs them.
"""
