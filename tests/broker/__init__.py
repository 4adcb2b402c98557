"""Tests of the broker's rules, without a socket and without a clock."""
