"""`web_fetch` and `web_search`, and the guard that keeps them out of private networks."""
