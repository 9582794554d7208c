"""What commands and the doctor tell about configured agents."""
