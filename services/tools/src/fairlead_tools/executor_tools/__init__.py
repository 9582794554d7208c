"""Tools that the executor itself runs, beside the sandboxes."""
