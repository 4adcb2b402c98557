"""Polycast: a columnar message broker."""

from polycast import version

__version__ = version.VERSION
