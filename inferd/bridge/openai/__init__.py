"""OpenAI's API: chat completions, completions, embeddings, reranking and models; pure."""
