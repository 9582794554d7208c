"""Fairlead as a service of this machine: of systemd, or of launchd."""
