"""Users of a NATS server of Fairlead: its services, systems that were added, hosts that joined."""
