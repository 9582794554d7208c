"""Which worker holds which session, and that none is left without one."""
