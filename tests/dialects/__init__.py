"""Tests of all dialects, without a socket."""
