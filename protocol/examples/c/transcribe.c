/* A client of inferd in C that hands sound over without base64.
 *
 *     cc -o transcribe transcribe.c && ./transcribe DIRECTORY < samples
 *
 * Samples are little-endian 32-bit floats of one channel, 16,000 a second. They go to the
 * daemon in a sealed file in memory, with the first byte of the request. This is Linux. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "json.h"
#include "trust.h"

#define TIMEOUT_S 600 /* of silence, before we give up: others may be heard first */

static const char REQUEST[] =
    "{\"id\":\"1\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"audio\","
    "\"attachment_id\":\"a\"}]}],\"attachments\":[{\"kind\":\"audio\",\"id\":\"a\","
    "\"sample_rate\":16000,\"fd\":0}]}\n";

static void fail(const char *what)
{
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* Copy all of a file to where nobody can change it any more. */
static int sealed(FILE *samples)
{
    char buffer[65536];
    size_t n;
    int fd = memfd_create("samples", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        fail("memfd_create");
    while ((n = fread(buffer, 1, sizeof buffer, samples)) > 0)
        if (write(fd, buffer, n) != (ssize_t)n)
            fail("write");
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        fail("seal");
    return fd;
}

static int dial(const char *directory)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval timeout = {.tv_sec = TIMEOUT_S};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fail("socket");
    snprintf(address.sun_path, sizeof address.sun_path, "%s/infer.v2.sock", directory);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail(address.sun_path);
    if (!is_trusted(fd)) {
        errno = EACCES; /* to trust another uid, name it in INFERD_TRUST_UID */
        fail("somebody else listens there");
    }
    return fd;
}

/* Send a line, and a descriptor along with its first byte. */
static void hand_over(int connection, const char *line, int fd)
{
    union {
        struct cmsghdr header; /* so that it is aligned */
        char bytes[CMSG_SPACE(sizeof(int))];
    } aside = {.bytes = {0}};
    struct iovec part = {.iov_base = (char *)line, .iov_len = strlen(line)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = aside.bytes,
                             .msg_controllen = sizeof aside.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    /* Short lines go at once; of a long one the rest would follow with send(). */
    if (sendmsg(connection, &message, MSG_NOSIGNAL) != (ssize_t)part.iov_len)
        fail("sendmsg");
    close(fd); /* the daemon has its own */
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t size = 0;
    if (argc != 2)
        return fputs("transcribe DIRECTORY < samples\n", stderr), 2;
    int fd = sealed(stdin), connection = dial(argv[1]);
    hand_over(connection, REQUEST, fd);
    FILE *frames = fdopen(connection, "r");
    while (frames && getline(&line, &size, frames) > 0) {
        const char *type = find(line, "type"), *block = find(line, "block");
        if (is(type, "error")) {
            put_string(find(line, "code"), stderr);
            fputs(": ", stderr);
            put_string(find(line, "message"), stderr);
            fputc('\n', stderr);
            return 1;
        }
        if (is(type, "done"))
            return free(line), fclose(frames), 0;
        if (block && is(find(block, "type"), "text")) {
            const char *start = find(block, "start_ms");
            printf("%8.2f ", start ? strtod(start, NULL) / 1000 : 0);
            put_string(find(block, "delta"), stdout);
            putchar('\n');
            fflush(stdout);
        }
    }
    fputs("the connection ended before the answer did\n", stderr);
    return 1;
}
