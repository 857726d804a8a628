"""The page at ``/``: files that a browser runs, and the rules that it is given with them.

``static/`` has the files as they are sent; nothing builds them. ``static/vendor/`` has modules of
others, unchanged, whose origins and digests ``vendored.json`` lists.
"""
