"""What tests share: a real nats-server, a scripted model on the wire, a running Fairlead."""
