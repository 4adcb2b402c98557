"""Stage and commit: rows wait under a batch id until a commit publishes them."""
