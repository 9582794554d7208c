"""Other agents on the bus, as the Synadia Agent Protocol has them: found, and prompted."""
