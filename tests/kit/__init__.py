"""What the tests talk to a broker with. Nothing here imports the code under test: bytes are written by hand."""
