"""One turn of a model: what it is shown, the request, and the reply that it streams."""
