"""Continuous batching with chunked prefill: slots, prefix cache, sampler, token writer."""
