"""Group commit: appending bursts and bulk batches, and fsync."""
