/* A client of inferd in C: stream an answer, embed a text, order documents.
 *
 *     cc -o client client.c && ./client [DIRECTORY]
 *
 * json.h has what little JSON it takes to read frames; trust.h asks Linux who answers. */

#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "json.h"
#include "trust.h"

#define TIMEOUT_S 60 /* of silence, before we give up */

static void fail(const char *leaf, const char *what)
{
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", leaf, what);
    exit(1);
}

static void show_text(const char *frame)
{
    const char *block = find(frame, "block");
    if (block && is(find(block, "type"), "text"))
        put_string(find(block, "delta"), stdout);
    if (is(find(frame, "type"), "done"))
        putchar('\n');
    fflush(stdout);
}

static void show_embedding(const char *frame)
{
    const char *at = find(frame, "embeddings"), *dimensions = find(frame, "dimensions");
    if (!at || !dimensions)
        fail("embedding", "a frame without one");
    printf("embedding: %ld numbers, first", strtol(dimensions, NULL, 10));
    at += strspn(at, "[ \t");
    for (int i = 0; i < 3; i++) {
        char *end;
        double number = strtod(at, &end);
        if (end == at)
            break;
        printf(" %.4f", number);
        at = end + strspn(end, ", \t");
    }
    putchar('\n');
}

static void show_ranking(const char *frame)
{
    int level = 0;
    const char *at = find(frame, "results");
    printf("ranking:");
    while (at && (at = find_next(at, &level, 2, "index")))
        printf(" %ld", strtol(at, NULL, 10));
    putchar('\n');
}

/* Connect to the socket in a directory; -1 if there is none. */
static int dial(const char *directory, const char *leaf)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval timeout = {.tv_sec = TIMEOUT_S};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || (size_t)snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", directory,
                                   leaf) >= sizeof address.sun_path)
        fail(leaf, "no socket can be made");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
        if (!is_trusted(fd))
            fail(leaf, "somebody else listens there; to trust a uid, name it in INFERD_TRUST_UID");
        return fd;
    }
    if (errno != ENOENT)
        fail(leaf, strerror(errno));
    close(fd);
    return -1;
}

/* Send one request and show each frame of its answer; the last of them ends it. */
static void ask(int fd, const char *leaf, const char *request, void (*show)(const char *))
{
    bool is_over = false;
    char *line = NULL;
    size_t size = 0;
    FILE *frames = fdopen(fd, "r");
    for (size_t sent = 0, n = strlen(request); sent < n;) {
        ssize_t n_sent = send(fd, request + sent, n - sent, MSG_NOSIGNAL);
        if (n_sent < 0)
            fail(leaf, strerror(errno));
        sent += (size_t)n_sent;
    }
    while (!is_over && frames && getline(&line, &size, frames) > 0 && strchr(line, '\n')) {
        const char *type = find(line, "type");
        if (is(type, "error")) {
            fprintf(stderr, "%s: ", leaf);
            put_string(find(line, "code"), stderr);
            fputs(": ", stderr);
            put_string(find(line, "message"), stderr);
            fputc('\n', stderr);
            exit(1);
        }
        is_over = is(type, "done") || is(type, "embeddings") || is(type, "rerank");
        show(line);
    }
    if (!is_over)
        fail(leaf, "the connection ended, or fell silent, before the answer was over");
    free(line);
    fclose(frames);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *leaf, *request;
        void (*show)(const char *);
    } surfaces[] = {
        {"infer.v2.sock",
         "{\"id\":\"1\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
         "\"text\":\"What is the capital of France?\"}]}],\"max_tokens\":200}\n",
         show_text},
        {"infer.embed.sock", "{\"id\":\"2\",\"input\":[\"Paris is the capital of France\"]}\n",
         show_embedding},
        {"infer.rerank.sock",
         "{\"id\":\"3\",\"query\":\"capital of France\",\"documents\":[\"Berlin is the capital of "
         "Germany\",\"Paris is the capital of France\",\"Bread is baked\"]}\n",
         show_ranking},
    };
    char own[108];
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *home = getenv("HOME");
    if (argc > 1)
        snprintf(own, sizeof own, "%s", argv[1]);
    else if (runtime && *runtime)
        snprintf(own, sizeof own, "%s/inferd", runtime);
    else if (home && *home)
        snprintf(own, sizeof own, "%s/.inferd/run", home);
    else
        snprintf(own, sizeof own, "/tmp/inferd-%ld", (long)getuid());
    int n_asked = 0;
    for (size_t i = 0; i < sizeof surfaces / sizeof *surfaces; i++) {
        int fd = dial(own, surfaces[i].leaf);
        if (fd < 0 && argc < 2)
            fd = dial("/run/inferd", surfaces[i].leaf);
        if (fd < 0) {
            fprintf(stderr, "no %s: skipped\n", surfaces[i].leaf);
            continue;
        }
        n_asked++;
        ask(fd, surfaces[i].leaf, surfaces[i].request, surfaces[i].show);
    }
    if (n_asked == 0)
        fail(own, "no daemon");
    return 0;
}
