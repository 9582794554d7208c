"""Sessions: made, listed, changed, spoken to and read."""
