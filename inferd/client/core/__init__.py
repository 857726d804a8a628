"""What the client library decides, without I/O: requests, events, answers, failures.

``conversation`` makes requests of what callers give, ``answer`` makes events and answers of
frames, ``failures`` makes exceptions of error frames, ``retries`` says which requests are
sent again. ``structures`` and ``tools`` make JSON schemas of types and signatures. ``plans``
puts these together: each call of the library is a generator that yields the requests that a
shell sends, so that the blocking client and the asynchronous one do the same.
"""
