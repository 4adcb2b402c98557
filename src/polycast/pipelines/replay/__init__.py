"""Publishes messages again, from the log or the lake.

pipeline    settings, sources, publishing
schedule    the original timing, scaled by a speed
steps       offset ranges of a replay from the lake
"""
