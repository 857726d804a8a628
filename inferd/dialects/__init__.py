"""How model families write prompts: for now, by the template that the model carries."""
