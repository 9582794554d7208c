"""Contracts for clients, generated from the structs on the wire and the gateway's table of routes.

`make contracts` writes them; `tests/unit/test_contracts.py` fails when they are out of date.
"""
