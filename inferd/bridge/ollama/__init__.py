"""Ollama's API: chats, generated texts, embeddings, and what is known of models; pure.

==============  =======================================  ==================================
module          takes                                    gives
==============  =======================================  ==================================
chat            the body of a chat                       a request to the daemon
generate        the body of a prompt                     the same
sampling        ``options``, ``format``, ``think``       their part of that request
durations       ``keep_alive``                           seconds
messages        messages, calls and tools                the daemon's
answer          the daemon's frames                      lines of JSON, or one object
vectors         texts                                    embeddings
models          what the daemon tells of models          lists and descriptions
store           names of models to pull or remove        requests to the helper, and lines
failures        a failure                                its body, or the line of a stream
==============  =======================================  ==================================
"""
