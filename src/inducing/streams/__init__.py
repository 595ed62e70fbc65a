"""Rows as they come: reading lines, predicting before learning, running scores, sessions that are saved and
resumed. May import the rooms from `numerics` to `beside`.
"""
