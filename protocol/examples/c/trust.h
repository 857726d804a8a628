/* Who answers: whether the process that listens at the other end of a socket is root's,
 * this user's, or that of a uid in INFERD_TRUST_UID, which has them separated by commas.
 * Define _GNU_SOURCE before any header: this is Linux. */

#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_named(unsigned long uid)
{
    char *end;
    const char *at = getenv("INFERD_TRUST_UID");
    for (; at && *at; at = *end ? end + 1 : end) {
        unsigned long named = strtoul(at, &end, 10);
        if (end == at || (*end && *end != ','))
            return false;
        if (named == uid)
            return true;
    }
    return false;
}

/* Ask it of a connected socket, before the first byte is sent. */
static bool is_trusted(int connection)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return false;
    return peer.uid == 0 || peer.uid == geteuid() || is_named(peer.uid);
}
