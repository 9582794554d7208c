"""What was started, so that nothing is started twice."""
