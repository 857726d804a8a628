"""Read the headers of GGUF files, and refuse those that contradict themselves."""
