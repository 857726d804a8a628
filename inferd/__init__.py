"""inferd: a local inference daemon. This is the path of a request, in order.

======  ==========================  =============================  ======================
step    module                      takes                          gives
======  ==========================  =============================  ======================
        server.reception            a connection                   a stream, who is there
1       server.connection           bytes                          frames, capped
        server.inbox, wire.framing
        wire.codec                  a frame                        a request
2       resolve                     a request                      a plan: job and needs
3       admission                   a ticket                       now, later, or no
4       routing                     what the job needs             a backend
        engine.preparer, preparing  a job that is not plain        its prompt and grammar
5       engine, pipe, worker        a job                          pieces, vectors, scores
        with dialects               messages                       the model's prompt
        worker.llama                prompts, pixels, sound         pieces, vectors, scores
        worker.whisper              sound                          pieces that have times
6       output                      pieces                         text, thoughts, calls
        backend                     (the interface of 4 to 6)      events
7       server.generate             events                         response frames
        server.conversations        v2 requests, their media       jobs, events
        server.long_lines, decoder  a large line                   what is small of it
        server.custody              what clients pass              open descriptors
        server.media                attachments                    files in memory
        server.appends              lines that append              what was appended
        server.feed, server.sound   what was appended              sound, bounded memory
        server.encode               vectors, scores                a response frame
        wire.codec                  response frames                bytes
beside  server.doors                what systemd holds             sockets, the lock
        server.listen, server.peer  paths                          sockets, callers' uids
        server.access, server.room  who may come in                places for connections
        server.identity             uids                           who counts as whom
        server.shares, server.loop  what each user had of the loop whose work is next
        server.force                a new configuration            what of it is in force
        server.surfaces             what backends can do           sockets and services
        fit, engine.ledger          what models need               slots, contexts
        server.status               what happens to the daemon     frames to listeners
        server.commands             what operators ask             replies
        server.activity             what happened to a request     one line of the log
        server.log, server.sink     every event                    lines, here and in a file
        server.quota                lines about a user             those that it has left
======  ==========================  =============================  ======================

The daemon imports no model library: ``worker`` runs in a process of its own. Stages 1 to
4 and 6 do no I/O. ``worker`` and ``decoder`` box themselves in with ``sandbox`` before
they see a byte of a client. ``limits`` holds every bound, ``errors`` every failure.
"""

__version__ = "0.1.0"
