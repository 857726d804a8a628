"""The documents that other projects publish of their APIs, and the answers to requests drawn from them.

==============  =======================================  ==================================
module          takes                                    gives
==============  =======================================  ==================================
documents       a document, the routes that are served   one of these routes alone
requests        such a document, tables of fields        one whose requests are accepted
answers         requests with their answers              what the document does not have
sample          nothing                                  a small document for the short form
==============  =======================================  ==================================
"""
