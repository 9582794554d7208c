"""`fairlead up`: starts the processes of an installation, restarts them, shows their logs, and ends them."""
