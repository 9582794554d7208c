"""What the installation tells of itself: metrics."""
