"""The routes under `polycast/`, which the broker serves itself."""
