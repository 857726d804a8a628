"""Transcriptions and translations of recordings, as OpenAI's API has them."""
