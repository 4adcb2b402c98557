"""Lets Spark find the format `polycast` by itself: it looks for packages of such names."""

from polycast.spark.source import PolycastSource as DefaultSource

__all__ = ["DefaultSource"]
