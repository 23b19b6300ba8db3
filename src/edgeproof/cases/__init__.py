"""Where cases come from. Imported on the host for their names and in the subject for their models."""
