"""Anthropic's API: messages, their tokens counted, and models; pure.

==============  =======================================  ==================================
module          takes                                    gives
==============  =======================================  ==================================
request         a body                                   a request to the daemon
system          the system prompt                        a message
messages        turns of content blocks                  messages
tools           tools and their choice                   the daemon's
answer          the daemon's frames                      a message, or its events
count           the end of a counted prompt              its tokens
failures        a failure                                its body, or its event
==============  =======================================  ==================================
"""
