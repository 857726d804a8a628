// inferd.h on top of client.hpp: no exception leaves any of these functions.

#include "inferd.h"

#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "client.hpp"

struct inferd_client {
  inferd::InferenceClient client;
};

static_assert(INFERD_RESULT_BYTES == inferd::StructuredResult::kMaxBytes, "one bound, two names");

namespace {

std::string text(const char* given) { return given ? given : ""; }

inferd::Config configOf(const inferd_config* given) {
  inferd::Config config;
  if (!given) return config;
  config.directory = text(given->directory);
  config.model = text(given->model);
  if (given->has_temperature) config.temperature = given->temperature;
  if (given->has_seed) config.seed = given->seed;
  if (given->timeout_ms) config.timeout_ms = given->timeout_ms;
  if (given->request_timeout_ms) config.request_timeout_ms = given->request_timeout_ms;
  return config;
}

std::vector<inferd::ChatMessage> messagesOf(const inferd_message* given, size_t n) {
  std::vector<inferd::ChatMessage> messages;
  for (size_t i = 0; i < n; ++i)
    messages.push_back({text(given[i].role), text(given[i].content)});
  return messages;
}

/// Makes the callback for a response whose text is in this field.
template <class Response>
auto calling(inferd_on_complete call, void* user, std::string Response::*field) {
  return [=](const Response& response) {
    if (!call) return;
    bool cancelled = false;
    if constexpr (!std::is_same_v<Response, inferd::TranscriptionResponse>)
      cancelled = response.cancelled;
    const std::string& text = response.*field;
    const inferd_response given = {text.c_str(),
                                   text.size(),
                                   cancelled,
                                   response.error,
                                   response.error_message.c_str(),
                                   response.error_code.c_str()};
    call(user, &given);
  };
}

}  // namespace

inferd_client* inferd_client_new(const inferd_config* config) {
  try {
    return new inferd_client{inferd::InferenceClient(configOf(config))};
  } catch (...) {
    return nullptr;
  }
}

void inferd_client_free(inferd_client* client) { delete client; }

bool inferd_configure(inferd_client* client, const inferd_config* config) {
  try {
    client->client.configure(configOf(config));
    return true;
  } catch (...) {
    return false;
  }
}

inferd_handle inferd_chat(inferd_client* client, const inferd_chat_request* request,
                          inferd_on_token on_token, inferd_on_complete on_complete, void* user) {
  try {
    return client->client.chat(
        {messagesOf(request->messages, request->n_messages), request->temperature,
         request->max_tokens},
        [=](const std::string& token) {
          if (on_token) on_token(user, token.c_str(), token.size());
        },
        calling(on_complete, user, &inferd::ChatResponse::full_response));
  } catch (...) {
    return 0;
  }
}

inferd_handle inferd_complete(inferd_client* client, const inferd_structured_request* request,
                              inferd_on_complete on_complete, void* user) {
  try {
    return client->client.complete(
        {messagesOf(request->messages, request->n_messages), text(request->schema_name),
         text(request->json_schema), request->temperature, request->max_tokens},
        calling(on_complete, user, &inferd::StructuredResponse::raw_json));
  } catch (...) {
    return 0;
  }
}

inferd_handle inferd_transcribe(inferd_client* client, const inferd_transcription_request* request,
                                inferd_on_complete on_complete, void* user) {
  try {
    return client->client.transcribe(
        {{request->audio_data, request->audio_data + request->n_bytes}, text(request->format)},
        calling(on_complete, user, &inferd::TranscriptionResponse::text));
  } catch (...) {
    return 0;
  }
}

void inferd_cancel(inferd_client* client, inferd_handle handle) {
  try {
    client->client.cancel(handle);
  } catch (...) {  // no memory for it: the request goes on
  }
}

bool inferd_is_in_flight(const inferd_client* client, inferd_handle handle) {
  return client->client.isInFlight(handle);
}

inferd_metrics inferd_last_request_metrics(const inferd_client* client) {
  const inferd::RequestMetrics metrics = client->client.lastRequestMetrics();
  return {metrics.latency_ms, metrics.time_to_first_token_ms, metrics.tokens_generated,
          metrics.tokens_per_second};
}

size_t inferd_token_usage(const inferd_client* client) {
  return client->client.tokenUsage().total_tokens;
}

size_t inferd_poll(inferd_client* client) { return client->client.poll(); }

bool inferd_read_result(inferd_client* client, inferd_result* result) {
  const std::optional<inferd::StructuredResult> found = client->client.readResult();
  if (!found) return false;
  result->handle = found->handle;
  result->size = found->size;
  std::memcpy(result->json, found->json, found->size + std::size_t{1});
  return true;
}
