"""The HTTP bridge: a process of its own, and an ordinary client of the daemon's sockets.

==============  =======================================  ==================================
package         takes                                    gives
==============  =======================================  ==================================
http            connections                              requests, within bounds
identity        a token, or the kernel's word on a uid   a principal with scopes
openai          a body of that API, and frames           a request to the daemon, an answer
anthropic       the same, of another API                 the same
whisper         a form of a third one                    the same
ollama          the same, of another API                 the same, and lists of models
admin           requests to manage models                requests to the helper
chats           requests about chats                     what is kept, events, answers
openapi         the records of all routes                their description
page            nothing                                  the files of the page at ``/``
recordings      a form with a recording, and frames      the same, with a transcript
translation     what all APIs share                      tables of fields, failures
media           a file of a caller                       pixels or samples, sealed
upstream        a request to the daemon                  frames, or a failure
serve           the configuration                        all of it, composed
==============  =======================================  ==================================

An API is a package of pure translation and its record in ``apis``.
"""
