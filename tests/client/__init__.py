"""Tests of the client library, both kinds of client."""
