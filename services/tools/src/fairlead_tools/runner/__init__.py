"""The runner: executes tool calls of one workspace, outlives the executor, journals what it started.

Only the standard library, Python 3.9 or newer: it is packed as a zipapp and also runs inside
containers and over ssh. Nothing here imports the rest of the service.
"""
