"""Several bridges behind one address: who they are, what the programs in front read, how they are.

``file`` reads the list of members, or has it looked up in DNS; ``entry`` writes from it what
smg and haproxy read, and is pure; ``probe`` asks each member how it is; ``drained`` keeps the
names of those that get no new requests; ``bounds`` has what can grow.
"""
