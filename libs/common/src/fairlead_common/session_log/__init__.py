"""The log of a session: what its records hold, and what its entries mean together."""
