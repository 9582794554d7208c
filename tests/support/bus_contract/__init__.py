"""What Fairlead builds on: the same tests for nats-server and for the server in memory."""
