/* The client of inferd for C. inferd_c.cpp beside it is the only file to compile:
 *
 *     c++ -std=c++17 -c inferd_c.cpp
 *     cc -c program.c && c++ -o program program.o inferd_c.o -pthread
 *
 * No function waits for the daemon, and none but inferd_client_free() takes long. All but
 * inferd_read_result() may be called from any thread. Callbacks run in inferd_poll(), and
 * what they are given is valid until they return. Texts are UTF-8 and end with a zero byte;
 * a size says where they end if the model has written a zero byte itself. */

#ifndef INFERD_H
#define INFERD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct inferd_client inferd_client;

/* Names one request of one client; 0 is none: there was no memory, or inferd_poll() has
 * not been called for 1,024 requests, and nothing will be called for this one. */
typedef uint64_t inferd_handle;

typedef struct {
    const char *directory;       /* of the sockets; NULL: where the protocol says they are */
    const char *model;           /* which model must answer; NULL: the daemon chooses */
    bool has_temperature;
    float temperature;           /* instead of each request's; 0 is sent as 0 */
    bool has_seed;
    uint32_t seed;
    uint32_t timeout_ms;         /* of silence; 0: 60,000 */
    uint32_t request_timeout_ms; /* in all; 0: 600,000 */
} inferd_config;

typedef struct {
    const char *role; /* "system", "user" or "assistant" */
    const char *content;
} inferd_message;

typedef struct {
    const inferd_message *messages;
    size_t n_messages;
    float temperature;
    int max_tokens;
} inferd_chat_request;

typedef struct {
    const inferd_message *messages;
    size_t n_messages;
    const char *schema_name; /* for your own use; may be NULL */
    const char *json_schema;
    float temperature;
    int max_tokens;
} inferd_structured_request;

typedef struct {
    const uint8_t *audio_data; /* copied */
    size_t n_bytes;
    const char *format; /* "wav", or "f32": floats of one channel, 16,000 a second */
} inferd_transcription_request;

/* What a chat, a structured answer (its JSON) or a transcription has come to. */
typedef struct {
    const char *text;
    size_t size;
    bool cancelled;
    bool error;
    const char *error_message;
    const char *error_code; /* the daemon's, if it refused */
} inferd_response;

typedef struct {
    double latency_ms;
    double time_to_first_token_ms;
    size_t tokens_generated;
    double tokens_per_second;
} inferd_metrics;

/* A structured answer, for a thread that must not wait. Longer ones are left out. */
#define INFERD_RESULT_BYTES 4080
typedef struct {
    inferd_handle handle;
    uint32_t size;
    char json[INFERD_RESULT_BYTES + 1];
} inferd_result;

typedef void (*inferd_on_token)(void *user, const char *token, size_t size);
typedef void (*inferd_on_complete)(void *user, const inferd_response *response);

/* NULL for config: as if all of it were 0. NULL is returned where this machine has no
 * memory, thread or descriptor left. */
inferd_client *inferd_client_new(const inferd_config *config);

/* Cancels what is in flight, without its callbacks. */
void inferd_client_free(inferd_client *client);

/* For requests from now on. False: no memory, and all is as it was. */
bool inferd_configure(inferd_client *client, const inferd_config *config);

/* Callbacks may be NULL. */
inferd_handle inferd_chat(inferd_client *client, const inferd_chat_request *request,
                          inferd_on_token on_token, inferd_on_complete on_complete, void *user);
inferd_handle inferd_complete(inferd_client *client, const inferd_structured_request *request,
                              inferd_on_complete on_complete, void *user);
inferd_handle inferd_transcribe(inferd_client *client, const inferd_transcription_request *request,
                                inferd_on_complete on_complete, void *user);

void inferd_cancel(inferd_client *client, inferd_handle handle);
bool inferd_is_in_flight(const inferd_client *client, inferd_handle handle);
inferd_metrics inferd_last_request_metrics(const inferd_client *client);
size_t inferd_token_usage(const inferd_client *client);

/* Calls the callbacks that are due; returns their number. */
size_t inferd_poll(inferd_client *client);

/* From one thread alone: no lock, no allocation, no system call. False: there is none. */
bool inferd_read_result(inferd_client *client, inferd_result *result);

#ifdef __cplusplus
}
#endif
#endif
