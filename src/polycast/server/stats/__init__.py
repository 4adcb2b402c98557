"""Counts and times that the broker records about itself: plain data, read by `observe` and `api`."""
