"""Plots and animations. May import the rooms from `numerics` to `streams`; Matplotlib loads when drawing."""
