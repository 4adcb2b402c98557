"""Group commit: appending bursts and bulk batches, fsync, and known batch ids."""
