"""The command `fairlead`: runs the platform and talks to it."""
