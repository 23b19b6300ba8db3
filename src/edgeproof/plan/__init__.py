"""What is asked for and what came of it, as plain data. Standard library and packaging only."""
