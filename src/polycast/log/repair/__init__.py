"""What a start does after any stop, salvage of damaged segments, and verification."""
