"""The pipeline `quality`: `pipeline` has its logic."""
