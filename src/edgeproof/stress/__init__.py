"""Stress: a lowered program driven from many native threads, and what that must prove."""
