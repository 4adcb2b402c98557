"""Input that nobody would send on purpose. POLYCAST_FUZZ says how many examples of it (`make fuzz`: many)."""
