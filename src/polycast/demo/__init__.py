"""Lively traffic in all five dialects, so that there is something to look at.

scenes   what is said: pure, from chance and the number of the turn
actors   who says it, and who listens: connections that come back when the broker does

python -m polycast.demo NAME=ADDRESS...      the listeners of a broker; dialects without one are left out
"""
