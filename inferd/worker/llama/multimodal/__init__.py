"""Images and audio in prompts: read, tokenise, encode in a thread, cache, prefill."""
