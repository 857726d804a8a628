"""inferd: a local inference daemon. This is the path of a request, in order.

======  =================================  =====================  ==========================
step    module                             takes                  gives
======  =================================  =====================  ==========================
1       server.listen.acceptor             a connection           a stream and its peer
2       server.connection.serve            bytes                  requests, in order
        server.connection.request_reader   lines                  requests, read ahead
        wire.framing, wire.codec           a line                 a request
        server.large_lines                 a line of 32 KiB up    the same, out of process
        server.fd_passing                  ancillary data         descriptors, counted
3       server.connection.dispatch         a request              one terminal frame, always
4       server.services.generate           a request              frames, by steps 5 to 12
        server.services.encode             a request              one frame of vectors
5       resolve                            a request              a job, its requirements
6       server.services.pipeline           a job                  a permit, by steps 7 to 10
7       admission, server.queue            user, priority, size   a permit, or a position
8       routing                            requirements, a name   a backend
9       engine.prepare, ipc.preparer       a job with tools       prompt, checked grammar
        dialects                           messages, tools        the prompt of a family
        dialects.schema                    schemas of tools       keywords, enforced or not
        worker.llama.grammar               structures, tools      a grammar for llguidance
10      engine.session_backend             a job                  messages to a worker
        ipc.worker, ipc.encoding           messages               bytes on a socket pair
        worker.runtime                     messages               calls of a backend
        worker.llama, worker.whisper       prompt, pixels, audio  tokens, vectors, segments
11      engine.channel                     messages of a worker   the messages of one job
        engine.streams                     messages of a job      events
        output                             bytes of tokens        text, reasoning, calls
12      server.services.frames             events                 response frames
        server.connection.response_writer  response frames        bytes
        server.loading                     a model's name         the model, loaded
beside  app                                a configuration        the daemon, composed
        surfaces                           a kind of socket       its name, mode, protocol
        server.services.endpoints          surfaces, backends     the sockets that are served
        config                             TOML                   settings
        config.kinds                       settings of a backend  its kind: worker, policies
        server.daemon                      sockets, backends      the task tree
        server.media                       attachments            memfds
        server.identity                    uids, principals       users, access rights
        server.event_loop                  tasks of users         fair shares of the loop
        server.admin                       commands               replies, new settings
        server.telemetry                   events of the daemon   status, log, metrics
        engine.supervisor                  a worker process       its restart, or its end
        engine.in_daemon                   a kind with no worker  its backend
        residency                          what models need       loads and unloads
        memory                             what models need       contexts, slots that fit
        backend                            calls of the server    the interface to engines
        chats                              calls of the bridge    chats that are kept
        installation                       an extra               the command that adds it
======  =================================  =====================  ==========================

The daemon imports no model library: each ``worker`` is a process of its own, and so is the
``line_decoder``. Both enter a ``sandbox`` before they read a client's request. ``limits`` has
the bounds, ``errors`` the failures that clients are sent. ``client`` and ``cli`` are the other
side of the sockets, and so is ``bridge``, a process that speaks HTTP; ``media_decoder`` is where
files of its callers are decoded, ``tool_host`` what speaks with servers of tools for their chats,
``management`` the helper that changes models for them, and
``fleet`` looks after several bridges. ``fair_limiter`` shares permits out,
``peer_credentials`` asks the kernel who is at the other end. ``doctor`` checks a
machine, ``service`` asks systemd about the daemon's units, and ``models`` has the model store,
reads the headers of model files and brings models into the store. ``downloader`` is the process
that speaks to hubs and servers for ``inferd model pull``, and confines the programs that take
models out of packages.
"""

__version__ = "0.1.0"
