"""What file tools and commands can reach, and what they may do."""
