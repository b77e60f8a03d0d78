"""The log that several nodes share: a stream of NATS JetStream, and a folder on every node."""
