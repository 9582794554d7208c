"""What travels on the bus and stands in logs: subjects, messages, entries, events, and their encoding."""
