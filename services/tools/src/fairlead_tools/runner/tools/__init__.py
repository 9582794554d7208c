"""The tools that the runner has: functions of the workspace and the arguments."""
