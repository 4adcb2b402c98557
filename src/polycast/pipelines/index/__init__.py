"""The pipeline `index`: `pipeline` has its logic."""
