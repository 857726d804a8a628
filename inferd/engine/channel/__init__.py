"""Messages to and from one worker: transport, validation, and demultiplexing by job."""
