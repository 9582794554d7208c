"""The runner: runs tools for one workspace, outlives the executor, keeps a journal of what it started.

Only the standard library, Python 3.9 or newer: it is packed as a zipapp and also runs inside
containers and over ssh. Nothing here imports the rest of the service.
"""
