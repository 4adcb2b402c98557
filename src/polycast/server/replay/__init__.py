"""Subscribers served from the log: replay from a position, the last message per topic, and spill."""
