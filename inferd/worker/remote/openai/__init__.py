"""OpenAI's chat completions, as many servers have them; nothing here does I/O."""
