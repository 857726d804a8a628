/* Every function of inferd.h: interface DIRECTORY, of a server that answers structures. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inferd/inferd.h"

#define CHECK(...)                                                     \
    do {                                                               \
        if (!(__VA_ARGS__)) {                                          \
            printf("FAILED line %d: %s\n", __LINE__, #__VA_ARGS__);    \
            exit(1);                                                   \
        }                                                              \
    } while (0)

typedef struct {
    char tokens[64], text[64], message[128], code[64];
    size_t size;
    int n_completed;
    bool cancelled, error;
} answer;

static void take(void *user, const char *token, size_t size)
{
    answer *got = user;
    strncat(got->tokens, token, size);
}

static void finish(void *user, const inferd_response *response)
{
    answer *got = user;
    got->n_completed++;
    got->size = response->size;
    got->cancelled = response->cancelled;
    got->error = response->error;
    snprintf(got->text, sizeof got->text, "%s", response->text);
    snprintf(got->message, sizeof got->message, "%s", response->error_message);
    snprintf(got->code, sizeof got->code, "%s", response->error_code);
}

static void wait_for(inferd_client *client, answer *got)
{
    const struct timespec pause = {0, 1000000};
    for (int n = 0; got->n_completed == 0; n++) {
        CHECK(n < 100000);
        inferd_poll(client);
        nanosleep(&pause, NULL);
    }
    CHECK(got->n_completed == 1);
}

int main(int argc, char **argv)
{
    const inferd_message messages[] = {{"system", "Be brief."}, {"user", "Hello"}};
    const inferd_chat_request chat = {messages, 2, 0.7f, 512};
    const inferd_structured_request structure = {messages, 2, NULL, "{}", 0, 64};
    const float samples[4] = {0};
    const inferd_transcription_request speech = {(const uint8_t *)samples, sizeof samples, "f32"};
    const inferd_transcription_request flac = {NULL, 0, "flac"};
    inferd_config config = {0};
    inferd_result result;
    CHECK(argc == 2);
    config.directory = argv[1];
    config.has_seed = config.has_temperature = true;
    config.seed = 7;
    config.model = "fast";
    inferd_client *client = inferd_client_new(&config);
    CHECK(client && inferd_last_request_metrics(client).tokens_generated == 0);
    CHECK(inferd_token_usage(client) == 0 && !inferd_read_result(client, &result));

    answer got = {0};
    inferd_handle handle = inferd_chat(client, &chat, take, finish, &got);
    CHECK(handle != 0 && inferd_is_in_flight(client, handle));
    wait_for(client, &got);
    CHECK(!inferd_is_in_flight(client, handle));
    CHECK(!got.error && !got.cancelled && strcmp(got.text, "{\"a\":1}") == 0 && got.size == 7);
    CHECK(strcmp(got.tokens, got.text) == 0);
    CHECK(inferd_last_request_metrics(client).tokens_generated == 1);
    CHECK(inferd_token_usage(client) == 12);

    memset(&got, 0, sizeof got);
    handle = inferd_complete(client, &structure, finish, &got);
    wait_for(client, &got);
    CHECK(!got.error && strcmp(got.text, "{\"a\":1}") == 0);
    CHECK(inferd_read_result(client, &result) && result.handle == handle);
    CHECK(result.size == 7 && strcmp(result.json, "{\"a\":1}") == 0);

    memset(&got, 0, sizeof got);
    CHECK(inferd_transcribe(client, &speech, finish, &got));
    wait_for(client, &got);
    CHECK(!got.error && strcmp(got.text, "{\"a\":1}") == 0);
    memset(&got, 0, sizeof got);
    CHECK(inferd_transcribe(client, &flac, finish, &got));
    wait_for(client, &got);
    CHECK(got.error && strstr(got.message, "\"flac\" is not supported"));

    memset(&got, 0, sizeof got);
    inferd_cancel(client, inferd_chat(client, &chat, NULL, finish, &got));
    wait_for(client, &got);
    CHECK(got.cancelled && !got.error);

    config.model = "refused";
    CHECK(inferd_configure(client, &config));
    memset(&got, 0, sizeof got);
    CHECK(inferd_chat(client, &chat, take, finish, &got));
    wait_for(client, &got);
    CHECK(got.error && strcmp(got.code, "model_not_found") == 0);
    CHECK(strcmp(got.message, "model_not_found: no") == 0);

    CHECK(inferd_chat(client, &chat, NULL, NULL, NULL));
    inferd_client_free(client);
    inferd_client_free(NULL);
    puts("ok");
    return 0;
}
