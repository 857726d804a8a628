"""OpenAI's responses: items in, and items out; pure.

==============  =======================================  ==================================
module          takes                                    gives
==============  =======================================  ==================================
request         a body                                   a request to the daemon
items           input items                              messages
tools           tools, their choice, a form              the daemon's, and what is skipped
output          the daemon's frames                      output items, and their events
answer          the daemon's frames                      a response, or its events
==============  =======================================  ==================================
"""
