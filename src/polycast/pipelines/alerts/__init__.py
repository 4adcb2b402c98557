"""The pipeline `alerts`: `pipeline` has its logic."""
