"""The dialects: bytes to the model and back, each in its own folder. `registry` lists them."""
