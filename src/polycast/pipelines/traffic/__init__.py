"""The pipeline `traffic`: `pipeline` has its logic."""
