"""What a run found, for people (a table) and for programs (JSON)."""
