"""The pipeline `replay`: `pipeline` has its logic."""
