"""Stage and commit: rows that wait under a batch id until one commit publishes them."""
