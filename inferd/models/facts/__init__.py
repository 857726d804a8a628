"""What the header of a model's file says of it, for people; no library is loaded."""
