"""Backup and restore: a copy of the log in a folder or a tar file, with the digests of its files."""
