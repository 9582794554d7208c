"""What is counted of runs, and the traces of runs."""
