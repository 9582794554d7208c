"""An in-memory nats-server with JetStream, for one event loop."""
