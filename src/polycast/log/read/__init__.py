"""Reading the log: by offset, time, sequence or pattern, while it is written and sealed."""
