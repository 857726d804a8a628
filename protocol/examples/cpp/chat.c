/* Ask one question and print the answer as it comes, in C.
 *
 *     c++ -std=c++17 -pthread -c inferd/inferd_c.cpp
 *     cc -c chat.c && c++ -pthread -o chat chat.o inferd_c.o && ./chat [DIRECTORY] */

#include <stdio.h>
#include <time.h>

#include "inferd/inferd.h"

typedef struct {
    bool is_over, has_failed;
} state;

static void show(void *user, const char *token, size_t size)
{
    (void)user;
    fwrite(token, 1, size, stdout);
}

static void finish(void *user, const inferd_response *response)
{
    state *answer = user;
    answer->is_over = true;
    answer->has_failed = response->error;
    if (response->error)
        fprintf(stderr, "%s\n", response->error_message);
}

int main(int argc, char **argv)
{
    const struct timespec pause = {0, 5000000};
    const inferd_message messages[] = {{"user", "What is the capital of France?"}};
    const inferd_chat_request request = {messages, 1, 0.7f, 512};
    inferd_config config = {0};
    state answer = {false, false};

    if (argc > 1)
        config.directory = argv[1];
    inferd_client *client = inferd_client_new(&config);
    if (!client || !inferd_chat(client, &request, show, finish, &answer))
        return 1;
    while (!answer.is_over) { /* your loop */
        inferd_poll(client);
        nanosleep(&pause, NULL);
    }
    inferd_client_free(client);
    putchar('\n');
    return answer.has_failed;
}
