"""The HTTP shell: connections within bounds, who may send requests, and their answers."""
