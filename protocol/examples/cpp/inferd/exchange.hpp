// One request and its answer, from the line that is sent to the frame that ends it.

#ifndef INFERD_EXCHANGE_HPP
#define INFERD_EXCHANGE_HPP

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>

#include "audio.hpp"
#include "json.hpp"
#include "transport.hpp"
#include "types.hpp"

namespace inferd {

/// Bytes of one request's line: the daemon reads no longer ones.
inline constexpr std::size_t kMaxRequestBytes = std::size_t{64} << 20;
/// Bytes of one line that is received: a structured answer comes as one, and the longest
/// context of a model is a million tokens of some four bytes, a few of them escaped.
inline constexpr std::size_t kMaxLineBytes = std::size_t{8} << 20;
/// Bytes of one answer's text, for the same reason.
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{8} << 20;

namespace detail {

using Clock = std::chrono::steady_clock;

/// Samples that are read from a recording at a time, a second: a few milliseconds of work,
/// after which it is the next request's turn.
inline constexpr std::size_t kSliceSamples = kSampleRate;
/// Bytes that are received at a time, and how often for one request before it is the next
/// one's turn.
inline constexpr std::size_t kReceiveBytes = 65536;
inline constexpr int kReceivesPerTurn = 4;

/// How a request ended.
struct Outcome {
  std::string text;
  bool cancelled = false;
  bool error = false;
  std::string message;
  std::string code;
  std::size_t input_tokens = 0;
  std::size_t output_tokens = 0;
  Clock::time_point at{};
};

inline Outcome failure(std::string message, std::string code = "") {
  Outcome outcome;
  outcome.error = true;
  outcome.message = std::move(message);
  outcome.code = std::move(code);
  return outcome;
}

// --- the line that asks ---------------------------------------------------------------

/// Every request has a connection of its own, and so the same id: the same request is the
/// same bytes.
inline constexpr std::string_view kBegin = "{\"id\":\"1\",\"messages\":[";

inline void appendMessages(std::string& line, const std::vector<ChatMessage>& messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    line += i ? ",{\"role\":" : "{\"role\":";
    appendJsonString(line, messages[i].role);
    line += ",\"content\":[{\"type\":\"text\",\"text\":";
    appendJsonString(line, messages[i].content);
    line += "}]}";
    if (line.size() > kMaxRequestBytes) break;  // told by requestLine()
  }
  line += "]";
}

/// Appends what every answer of text has; gives what is wrong with it.
inline std::string appendOptions(std::string& line, float temperature, int max_tokens) {
  if (!std::isfinite(temperature)) return "temperature is no number";
  if (max_tokens < 0) return "max_tokens " + std::to_string(max_tokens) + " is below 0";
  line += ",\"temperature\":";
  appendJsonNumber(line, temperature);
  line += ",\"max_tokens\":" + std::to_string(max_tokens);
  return "";
}

inline std::string appendRequest(std::string& line, const ChatRequest& request,
                                 const Config& config) {
  appendMessages(line, request.messages);
  return appendOptions(line, config.temperature.value_or(request.temperature), request.max_tokens);
}

inline std::string appendRequest(std::string& line, const StructuredRequest& request,
                                 const Config& config) {
  const Json schema = Json::parse(request.json_schema);
  if (!schema.exists()) return "json_schema is not valid JSON";
  appendMessages(line, request.messages);
  line += ",\"response_format\":{\"type\":\"json_schema\",\"schema\":";
  appendCompact(line, schema);
  line += "},\"stream\":false";
  return appendOptions(line, config.temperature.value_or(request.temperature), request.max_tokens);
}

/// A transcription takes no seed; `timestamps` says that nothing but one will do.
inline std::string appendRequest(std::string& line, const TranscriptionRequest&, const Config&) {
  line +=
      "{\"role\":\"user\",\"content\":[{\"type\":\"audio\",\"attachment_id\":\"a\"}]}],"
      "\"attachments\":[{\"kind\":\"audio\",\"id\":\"a\",\"sample_rate\":16000,\"fd\":0}],"
      "\"timestamps\":\"segment\"";
  return "";
}

/// Writes the line of a request; gives what is wrong with the request, or nothing.
template <class Request>
std::string requestLine(std::string& line, const Request& request, const Config& config) {
  line = kBegin;
  const std::string wrong = appendRequest(line, request, config);
  if (!wrong.empty()) return wrong;
  if (!config.model.empty()) {
    line += ",\"model\":";
    appendJsonString(line, config.model);
  }
  if (config.seed && !std::is_same_v<Request, TranscriptionRequest>)
    line += ",\"seed\":" + std::to_string(*config.seed);
  line += ",\"progress\":true}\n";
  return line.size() <= kMaxRequestBytes
             ? ""
             : "the request is over " + std::to_string(kMaxRequestBytes) + " bytes";
}

// --- the frames that answer -----------------------------------------------------------

/// Reads the frames of one answer, however they are cut into pieces. No I/O.
class AnswerReader {
 public:
  explicit AnswerReader(bool is_structured) : is_structured_(is_structured) {}

  /// Takes what was received. `on_text` is given each piece of text. True: it is over.
  template <class OnText>
  bool feed(std::string_view bytes, OnText on_text) {
    while (!is_over_ && !bytes.empty()) {
      const std::size_t n = std::min(bytes.find('\n'), bytes.size());
      if (line_.size() + n > kMaxLineBytes) return end(failure(kUnreadable));
      line_ += bytes.substr(0, n);
      if (n == bytes.size()) break;
      bytes.remove_prefix(n + 1);
      frame(on_text);
      line_.clear();
    }
    return is_over_;
  }

  /// Ends it from outside; the text so far is kept.
  bool end(Outcome outcome) {
    is_over_ = true;
    outcome_ = std::move(outcome);
    outcome_.text = std::move(text_);
    return true;
  }

  Outcome take() { return std::move(outcome_); }

 private:
  static constexpr const char* kUnreadable = "Failed to parse response";

  template <class OnText>
  void frame(OnText& on_text) {
    const Json frame = Json::parse(line_);
    const Json type = frame["type"];
    if (!type.isString()) {
      end(failure(kUnreadable));
    } else if (type.is("frame")) {
      piece(frame["block"], on_text);
    } else if (type.is("done")) {
      done(frame);
    } else if (type.is("error")) {
      const std::string code = frame["code"].text();
      end(code.empty() ? failure(kUnreadable)
                       : failure(code + ": " + frame["message"].text(), code));
    }  // other types are news of a queue, or of a later version
  }

  template <class OnText>
  void piece(const Json& block, OnText& on_text) {
    if (!block["type"].is("text")) return;  // a thought
    const Json delta = block["delta"];
    if (!delta.isString()) {
      end(failure(kUnreadable));
      return;
    }
    std::string text = delta.text();
    if (text_.size() + text.size() > kMaxAnswerBytes) {
      end(failure("The answer is over " + std::to_string(kMaxAnswerBytes) + " bytes"));
      return;
    }
    text_ += text;
    on_text(std::move(text));
  }

  void done(const Json& frame) {
    Outcome outcome;
    const Json reason = frame["stop_reason"], usage = frame["usage"];
    outcome.input_tokens = static_cast<std::size_t>(usage["input_tokens"].natural().value_or(0));
    outcome.output_tokens = static_cast<std::size_t>(usage["output_tokens"].natural().value_or(0));
    outcome.cancelled = reason.is("cancelled");
    const char* wrong = nullptr;
    if (outcome.cancelled)
      wrong = nullptr;
    else if (reason.is("error"))
      wrong = "The daemon ended the answer with an error";
    else if (is_structured_ && !frame["structure_complete"].isTrue())
      wrong = "Response did not match schema";
    else if (is_structured_ && !Json::parse(text_).exists())
      wrong = kUnreadable;
    outcome.error = wrong != nullptr;
    if (wrong) outcome.message = wrong;
    end(std::move(outcome));
  }

  bool is_structured_;
  bool is_over_ = false;
  std::string line_;
  std::string text_;
  Outcome outcome_;
};

// --- both, over a connection ----------------------------------------------------------

using AnyRequest = std::variant<ChatRequest, StructuredRequest, TranscriptionRequest>;

/// A request on its way to the client's thread.
struct Job {
  RequestHandle handle = 0;
  AnyRequest request;
  Config config;
  std::vector<std::string> directories;
  Clock::time_point started{};
};

/// Takes a request through its steps. Each does a bounded amount of work and none blocks.
class Exchange {
 public:
  using OnText = std::function<void(RequestHandle, std::string)>;

  Exchange(Job job, Transport& transport)
      : handle_(job.handle),
        reader_(std::holds_alternative<StructuredRequest>(job.request)),
        is_structured_(std::holds_alternative<StructuredRequest>(job.request)),
        streams_(std::holds_alternative<ChatRequest>(job.request)),
        silence_(job.config.timeout_ms),
        heard_(job.started),
        ends_(job.started + std::chrono::milliseconds(job.config.request_timeout_ms)) {
    const std::string wrong = std::visit(
        [&](const auto& request) { return requestLine(line_, request, job.config); }, job.request);
    if (!wrong.empty()) {
      is_over_ = reader_.end(failure(wrong));
      return;
    }
    if (auto* speech = std::get_if<TranscriptionRequest>(&job.request)) {
      audio_ = std::make_unique<AudioReader>(std::move(speech->audio_data), speech->format);
      if (!audio_->error().empty()) {
        is_over_ = reader_.end(failure(audio_->error()));
        return;
      }
      samples_ = Descriptor(::memfd_create("inferd-samples", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      if (samples_.get() < 0) {
        fail(std::string("No memory for the samples: ") + std::strerror(errno));
        return;
      }
    }
    connection_ = transport.open(job.directories);
  }

  RequestHandle handle() const { return handle_; }
  bool isStructured() const { return is_structured_; }
  bool isOver() const { return is_over_; }
  Outcome take() { return reader_.take(); }

  /// Ends it with a failure of this machine, such as too little memory.
  void fail(const std::string& message) { is_over_ = reader_.end(failure(message)); }

  /// Does what can be done now. `is_paused`: nothing is received, because the program has
  /// not taken what is there.
  void step(Clock::time_point now, bool is_paused, char* buffer, const OnText& on_text) {
    if (!is_over_ && audio_) decode(now);
    if (!is_over_ && !audio_ && !isSent()) send(now);
    if (!is_over_ && isSent()) {
      if (is_paused)
        heard_ = now;
      else
        receive(now, buffer, on_text);
    }
    if (!is_over_ && now >= deadline()) is_over_ = reader_.end(failure("Request timed out"));
  }

  Clock::time_point deadline() const { return std::min(heard_ + silence_, ends_); }

  /// Whether step() has more to do at once.
  bool isBusy() const { return audio_ != nullptr; }
  bool isSent() const { return n_sent_ == line_.size(); }
  int fd() const { return connection_->fd(); }

 private:
  void decode(Clock::time_point now) {
    heard_ = now;
    slice_.clear();
    const bool has_more = audio_->read(kSliceSamples, slice_);
    const char* at = reinterpret_cast<const char*>(slice_.data());
    std::size_t left = slice_.size() * sizeof(float);
    while (left > 0) {
      const ssize_t n = ::write(samples_.get(), at, left);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        fail(std::string("No memory for the samples: ") + std::strerror(errno));
        return;
      }
      at += n;
      left -= static_cast<std::size_t>(n);
    }
    if (has_more) return;
    audio_.reset();
    slice_ = {};
    if (::fcntl(samples_.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) < 0)
      fail(std::string("The samples cannot be sealed: ") + std::strerror(errno));
  }

  void send(Clock::time_point now) {
    const std::string_view rest = std::string_view(line_).substr(n_sent_);
    const Moved moved = connection_->send(rest, n_sent_ == 0 ? samples_.get() : -1);
    if (moved.n_bytes > 0) heard_ = now;
    n_sent_ += moved.n_bytes;
    if (moved.failure.empty()) return;
    if (n_sent_ == 0) unsent_ = moved.failure;
    n_sent_ = line_.size();  // the daemon may have said why before it left
  }

  void receive(Clock::time_point now, char* buffer, const OnText& on_text) {
    for (int i = 0; i < kReceivesPerTurn && !is_over_; ++i) {
      const Moved moved = connection_->receive(buffer, kReceiveBytes);
      if (moved.ended || !moved.failure.empty())
        return fail(unsent_.empty() ? "Connection closed before the answer was complete" : unsent_);
      if (moved.n_bytes == 0) return;
      heard_ = now;
      is_over_ = reader_.feed({buffer, moved.n_bytes}, [&](std::string text) {
        if (streams_) on_text(handle_, std::move(text));
      });
    }
  }

  RequestHandle handle_;
  AnswerReader reader_;
  bool is_structured_;
  bool streams_;
  bool is_over_ = false;
  std::chrono::milliseconds silence_;
  Clock::time_point heard_;
  Clock::time_point ends_;
  std::string line_;
  std::size_t n_sent_ = 0;
  std::string unsent_;  // why not a byte could be sent
  std::unique_ptr<AudioReader> audio_;
  std::vector<float> slice_;
  Descriptor samples_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace detail
}  // namespace inferd

#endif
