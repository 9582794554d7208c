"""Lists that are derived from the logs and can be made again."""
