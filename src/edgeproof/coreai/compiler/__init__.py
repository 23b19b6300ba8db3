"""From a partition of an edge program to a Core AI asset."""
