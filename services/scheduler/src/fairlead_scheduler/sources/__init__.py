"""Sources of runs other than schedules: events on subjects, HTTP hooks, files."""
