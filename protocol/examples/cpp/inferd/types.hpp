// What a program asks and what it is told.

#ifndef INFERD_TYPES_HPP
#define INFERD_TYPES_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace inferd {

/// Names one request of one client. 0 names none.
using RequestHandle = std::uint64_t;

struct ChatMessage {
  std::string role;  ///< "system", "user" or "assistant"
  std::string content;
};

struct ChatRequest {
  std::vector<ChatMessage> messages;
  float temperature = 0.7f;
  int max_tokens = 512;
};

struct StructuredRequest {
  std::vector<ChatMessage> messages;
  std::string schema_name;  ///< for your own use: the daemon needs none
  std::string json_schema;  ///< a JSON Schema, as a text
  float temperature = 0.0f;
  int max_tokens = 512;
};

struct TranscriptionRequest {
  std::vector<std::uint8_t> audio_data;
  std::string format;  ///< "wav", or "f32": floats of one channel, 16,000 a second
};

struct ChatResponse {
  std::string full_response;  ///< what onToken was given, whether or not it is all
  bool cancelled = false;
  bool error = false;
  std::string error_message;
  std::string error_code;  ///< the daemon's, of protocol/errors.md, if it refused
};

struct StructuredResponse {
  std::string raw_json;
  bool cancelled = false;
  bool error = false;
  std::string error_message;
  std::string error_code;
};

struct TranscriptionResponse {
  std::string text;
  bool error = false;
  std::string error_message;
  std::string error_code;
};

struct RequestMetrics {
  double latency_ms = 0.0;              ///< from chat() or complete() to the last frame
  double time_to_first_token_ms = 0.0;  ///< to the first text of a chat
  std::size_t tokens_generated = 0;     ///< pieces of a chat; tokens of a structure
  double tokens_per_second = 0.0;       ///< 0 on error
};

struct TokenUsage {
  std::size_t total_tokens = 0;  ///< of prompts and answers, as the daemon counted them
};

struct Config {
  std::string directory;  ///< of the sockets; empty: where the protocol says they are
  std::string model;      ///< which model must answer; empty: the daemon chooses
  std::optional<float> temperature;   ///< instead of each request's; 0 is sent as 0
  std::optional<std::uint32_t> seed;  ///< sent only if it is set
  /// Milliseconds of silence before a request has timed out. The daemon tells a request
  /// its place in the queue when that changes, which is no silence.
  std::uint32_t timeout_ms = 60000;
  /// Milliseconds before a request has timed out, however much has been heard.
  std::uint32_t request_timeout_ms = 600000;
};

/// A structured answer for a thread that may neither wait nor allocate: by value. A
/// client with a Result of its own is given that instead.
struct StructuredResult {
  /// Bytes of an answer that is queued; a longer one is left out, and counted. A bar of
  /// notes has some 2 KB as JSON, and 16 of these are 64 KiB.
  static constexpr std::size_t kMaxBytes = 4080;

  RequestHandle handle = 0;
  std::uint32_t size = 0;
  char json[kMaxBytes + 1] = {};  ///< ends with a zero byte as well

  std::string_view text() const noexcept { return {json, size}; }
};

}  // namespace inferd

#endif
