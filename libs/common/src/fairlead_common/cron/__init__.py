"""Jobs, wakes and heartbeats: what they are on the wire, and how their times are read. Pure."""
