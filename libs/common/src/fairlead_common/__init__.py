"""The wire contract, the bus and the process skeleton that every Fairlead service shares."""
