"""Pictures of the documents, taken of real programs whose answers a script writes."""
