"""The golden conversations in the form of OpenAI's API.

The answers were recorded from this project's bridge in front of a scripted backend; what they
had besides is left out: times, ids and the counts of caches. The overflow is llama-server's.
"""
