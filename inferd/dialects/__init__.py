"""How families of models write prompts, thoughts and tool calls."""
