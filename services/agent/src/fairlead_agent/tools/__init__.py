"""Tools as the agent sees them: what there is, where it runs, and the calls of a session."""
