"""Who a peer is, and what it may do: one place that decides, and a guard at every connection that asks it."""
