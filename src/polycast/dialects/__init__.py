"""The dialects: bytes to the model and back, each in a file of its own. `registry` lists them."""
