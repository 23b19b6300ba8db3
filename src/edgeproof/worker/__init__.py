"""What runs inside the subject: the stages of a cell, and the numbers measured on the way."""
