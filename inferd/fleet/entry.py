"""What the programs in front of bridges read and are told; pure.

smg keeps a conversation on its machine: it remembers which prompts each member had, and sends
one that begins as another did to the same member. Haproxy does so by a hash of the first
message of the user. Neither repeats a request: a bridge has begun to answer, or has refused,
and who asked knows which.
"""

from collections.abc import Collection, Sequence
from ipaddress import ip_address
from typing import Final

import msgspec

from inferd.fleet.bounds import (
    MAX_ENTRY_BODY_BYTES,
    MAX_ENTRY_CONNECTIONS,
    PROBE_S,
)
from inferd.fleet.file import Fleet, FleetMember

USER: Final = "fleet"
"""The name before the token in the URLs of members, which nobody reads."""
MANIFEST_VERSION: Final = 1
LOOK_S: Final = 5
"""Seconds between two looks of the entry at a member."""
SMG_OPTIONS: Final = (
    *("--policy", "cache_aware"),
    "--disable-retries",
    *("--discovery-provider", "file", "--discovery-check-interval-secs", str(LOOK_S)),
    *("--health-check-endpoint", "/ready", "--health-check-interval-secs", str(LOOK_S)),
    *(
        "--health-check-timeout-secs",
        f"{PROBE_S:.0f}",
        "--health-failure-threshold",
        "1",
    ),
    *("--health-success-threshold", "1", "--worker-startup-check-interval", "1"),
    *("--max-concurrent-requests", str(MAX_ENTRY_CONNECTIONS)),
    *("--history-backend", "none", "--disable-tokenizer-autoload"),
    *("--log-level", "warn"),
)
"""What is the same for every fleet."""

HAPROXY: Final = """\
# Written by `inferd fleet write`; changes here are lost.
global
    maxconn {connections}
    tune.bufsize {body}

defaults
    mode http
    retries 0
    option http-buffer-request
    option dontlognull
    timeout connect {probe}s
    timeout client 3600s
    timeout server 3600s
    timeout http-request 60s
    timeout queue 60s

frontend inferd
    bind {listen}
    http-request set-var(txn.role) req.body,json_query('$.messages[0].role')
    http-request set-var(txn.first) req.body,json_query('$.messages[0].content')
    http-request set-var(txn.first) req.body,json_query('$.messages[1].content') if {{ var(txn.role) -m str system developer }}
    http-request set-var(txn.first) req.body,json_query('$.prompt') if !{{ var(txn.first) -m found }}
    default_backend members

backend members
    balance hash var(txn.first)
    hash-type consistent
    hash-balance-factor 150
    option httpchk
    http-check send meth GET uri /ready hdr Host localhost
    http-check expect status 200
    default-server check inter {look}s fall 1 rise 1 on-marked-down shutdown-sessions
"""


def smg_manifest(fleet: Fleet, drained: Collection[str]) -> bytes:
    """Write the list that smg reads: members that are not drained, with the token.

    Args:
        fleet: all members.
        drained: names of those that are left out.
    """
    workers = [
        {"id": member.name, "url": _with_token(member, fleet.token)}
        for member in fleet.members
        if member.name not in drained
    ]
    fields = {"version": MANIFEST_VERSION, "workers": workers}
    return msgspec.json.format(msgspec.json.encode(fields)) + b"\n"


def _with_token(member: FleetMember, token: str) -> str:
    parts = member.parts
    netloc = f"{USER}:{token}@{parts.netloc}" if token else parts.netloc
    return parts._replace(netloc=netloc).geturl()


def smg_arguments(fleet: Fleet, control_key: str) -> Sequence[str]:
    """List the arguments of ``smg``.

    Args:
        fleet: whose list it reads.
        control_key: without which nobody may add members to it; nobody has to know it.
    """
    settings = fleet.settings
    arguments = ["launch", *SMG_OPTIONS]
    for place, host_option, port_option in (
        (settings.listen, "--host", "--port"),
        (settings.metrics_listen, "--prometheus-host", "--prometheus-port"),
    ):
        host, _, port = place.rpartition(":")
        arguments += [host_option, host.strip("[]"), port_option, port]
    arguments += ["--discovery-file", str(fleet.place(settings.smg_file))]
    arguments += ["--control-plane-api-keys", f"fleet:fleet:admin:{control_key}"]
    if settings.ca_file:
        arguments += ["--ca-cert-paths", str(fleet.place(settings.ca_file))]
    if settings.tls_certificate:
        arguments += ["--tls-cert-path", str(fleet.place(settings.tls_certificate))]
        arguments += ["--tls-key-path", str(fleet.place(settings.tls_key))]
    return arguments


def haproxy_config(fleet: Fleet, drained: Collection[str]) -> bytes:
    """Write the configuration of haproxy; members that are drained get nothing new.

    Args:
        fleet: all members.
        drained: names of those.
    """
    settings = fleet.settings
    listen = settings.listen
    if settings.tls_certificate:  # haproxy looks for the key beside it, in FILE.key
        listen += f" ssl crt {fleet.place(settings.tls_certificate)}"
    text = HAPROXY.format(
        connections=MAX_ENTRY_CONNECTIONS,
        body=MAX_ENTRY_BODY_BYTES,
        probe=f"{PROBE_S:.0f}",
        look=LOOK_S,
        listen=listen,
    )
    lines = [_server(fleet, member, member.name in drained) for member in fleet.members]
    return (text + "".join(lines)).encode()


def _server(fleet: Fleet, member: FleetMember, is_drained: bool) -> str:  # noqa: FBT001  # a line's
    tls = _tls(fleet, member) if member.parts.scheme == "https" else ""
    weight = " weight 0" if is_drained else ""
    return f"    server {member.name} {member.parts.netloc}{tls}{weight}\n"


def _tls(fleet: Fleet, member: FleetMember) -> str:
    """Have a member's certificate verified, for its host: by default haproxy takes any."""
    host = member.parts.hostname or ""
    ca_file = fleet.settings.ca_file
    trusted = fleet.place(ca_file) if ca_file else "@system-ca"
    tls = f" ssl verify required ca-file {trusted} verifyhost {host}"
    return tls if _is_address(host) else f"{tls} sni str({host}) check-sni {host}"


def _is_address(host: str) -> bool:
    """Tell whether a host is an IP address, which TLS never sends as a server's name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
