"""The test kit: packets are built by hand, and nothing here imports the code under test."""
