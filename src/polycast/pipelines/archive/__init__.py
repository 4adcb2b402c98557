"""The pipeline `archive`: `pipeline` has its logic."""
