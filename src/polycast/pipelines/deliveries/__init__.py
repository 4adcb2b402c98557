"""The pipeline `deliveries`: `pipeline` has its logic."""
