"""Hard limits on what models may cost."""
