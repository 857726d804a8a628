"""The tests of llama.cpp's own HTTP server, in front of the bridge.

Each of those tests starts a server with options of its own. `shim` takes the place of that
program, and asks `keeper` for a daemon that is configured alike (`arguments`); it becomes a
bridge to it. `plugin` is loaded into the other project's tests, `sources` fetches them, and
`expected` has the cases that are known to differ, each with the reason.
"""
