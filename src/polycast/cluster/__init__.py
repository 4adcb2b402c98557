"""The cluster: brokers that share one replicated log, a JetStream stream."""
