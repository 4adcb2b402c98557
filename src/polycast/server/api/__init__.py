"""The routes under `polycast/` that the broker answers itself."""
