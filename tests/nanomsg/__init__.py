"""Tests of the sockets in `polycast.nanomsg`."""
