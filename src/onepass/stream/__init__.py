"""Stream."""
