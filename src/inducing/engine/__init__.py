"""The evidence and its gradient: sites, the passes over rows in memory, in a source or on a cluster, their
tiles, blocks and sums. May import `numerics`, `model`, `files` and `sources`.
"""
