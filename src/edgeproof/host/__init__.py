"""What runs on the user's machine around the workers. Never imports torch or executorch."""
