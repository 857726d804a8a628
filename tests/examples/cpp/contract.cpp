// The contract of the C++ client, case by case: contract DIRECTORY_OF_A_DAEMON [CASE...]
//
// Prints "ok CASE" for each, and ends with 1 where one has failed. The daemon's first
// backend answers "Hello wörld!" in four pieces and writes that down for any speech; the
// second has a model, and is the one that holds an answer to a schema.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/stat.h>

#include "inferd/client.hpp"

static thread_local bool is_counting = false;
static thread_local int n_allocations = 0;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these have their own
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (is_counting) ++n_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace {

using namespace inferd;
using namespace std::chrono_literals;

std::string daemon_directory;

void check(bool is_so, const char* what, int line) {
  if (!is_so) throw std::runtime_error("line " + std::to_string(line) + ": " + what);
}
#define CHECK(...) check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __LINE__)

/// Polls until it is so; bounded so that a hang is a failure, not a measure of speed.
template <class Client>
void until(Client& client, const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + 100s;
  for (client.poll(); !is_so(); client.poll()) {
    CHECK(std::chrono::steady_clock::now() < end);
    std::this_thread::sleep_for(1ms);
  }
}

// --- a transport whose every byte is known -------------------------------------------

struct Script : Transport {
  std::string answer;            // after a whole line was sent
  std::size_t piece = SIZE_MAX;  // bytes given at a time
  bool stays_open = false;       // after the answer
  bool repeats = false;          // the answer, for ever
  bool takes_nothing = false;
  std::string throws;

  std::mutex mutex;
  std::vector<std::string> lines;
  std::vector<float> samples;
  std::atomic<int> n_open{0}, n_opened{0};
  std::atomic<std::size_t> n_given{0};

  std::unique_ptr<Connection> open(const std::vector<std::string>&) override;
};

struct ScriptedConnection : Connection {
  explicit ScriptedConnection(Script& given) : script(given) { ++script.n_open, ++script.n_opened; }
  ~ScriptedConnection() override { --script.n_open; }

  Moved send(std::string_view bytes, int descriptor) override {
    if (!script.throws.empty()) throw std::runtime_error(script.throws);
    if (script.takes_nothing) return {};
    const std::lock_guard<std::mutex> lock(script.mutex);
    const std::size_t n = std::min(bytes.size(), std::size_t{4096});
    line += bytes.substr(0, n);
    if (line.back() == '\n') script.lines.push_back(line);
    if (descriptor >= 0) {
      const off_t size = ::lseek(descriptor, 0, SEEK_END);
      script.samples.resize(static_cast<std::size_t>(size) / sizeof(float));
      const ssize_t n_read = ::pread(descriptor, script.samples.data(), static_cast<std::size_t>(size), 0);
      CHECK(n_read == size && ::fcntl(descriptor, F_GET_SEALS) != 0);
    }
    return {n, false, ""};
  }

  Moved receive(char* buffer, std::size_t size) override {
    if (at == script.answer.size() && script.repeats) at = 0;
    if (at == script.answer.size()) return {0, !script.stays_open, ""};
    const std::size_t n = std::min({size, script.piece, script.answer.size() - at});
    std::memcpy(buffer, script.answer.data() + at, n);
    at += n;
    script.n_given += n;
    return {n, false, ""};
  }

  Script& script;
  std::string line;
  std::size_t at = 0;
};

std::unique_ptr<Connection> Script::open(const std::vector<std::string>&) {
  return std::make_unique<ScriptedConnection>(*this);
}

std::shared_ptr<Script> says(std::string answer, bool stays_open = false) {
  auto script = std::make_shared<Script>();
  script->answer = std::move(answer);
  script->stays_open = stays_open;
  return script;
}

std::string piece(const std::string& text) {
  return R"({"type":"frame","id":"1","block":{"type":"text","delta":")" + text + "\"}}\n";
}

const std::string done =
    R"({"type":"done","id":"1","usage":{"input_tokens":5,"output_tokens":7},"stop_reason":"end_turn"})"
    "\n";
const std::string structure_done =
    R"({"type":"done","id":"1","usage":{"input_tokens":5,"output_tokens":7},"stop_reason":"end_turn","structure_complete":true})"
    "\n";

const ChatRequest hello{{{"user", "Hello"}}};
const StructuredRequest structure{{{"user", "A note"}}, "note", R"({"type": "object"})"};

template <class Client>
ChatResponse chat(Client& client, const ChatRequest& request = hello) {
  std::vector<ChatResponse> got;
  client.chat(request, nullptr, [&](const ChatResponse& each) { got.push_back(each); });
  until(client, [&] { return !got.empty(); });
  return got[0];
}

template <class Client>
StructuredResponse complete(Client& client, const StructuredRequest& request = structure) {
  std::vector<StructuredResponse> got;
  client.complete(request, [&](const StructuredResponse& each) { got.push_back(each); });
  until(client, [&] { return !got.empty(); });
  return got[0];
}

TranscriptionResponse transcribe(InferenceClient& client, TranscriptionRequest request) {
  std::vector<TranscriptionResponse> got;
  client.transcribe(std::move(request), [&](const TranscriptionResponse& each) { got.push_back(each); });
  until(client, [&] { return !got.empty(); });
  return got[0];
}

Config at(const std::string& directory) {
  Config config;
  config.directory = directory;
  return config;
}

bool isZero(const RequestMetrics& metrics) {
  return metrics.latency_ms == 0 && metrics.time_to_first_token_ms == 0 &&
         metrics.tokens_generated == 0 && metrics.tokens_per_second == 0;
}

// --- with a daemon --------------------------------------------------------------------

void a_chat_streams_and_completes_once() {
  InferenceClient client(at(daemon_directory));
  std::vector<std::string> tokens;
  std::vector<ChatResponse> completed;
  const auto here = std::this_thread::get_id();
  const RequestHandle handle = client.chat(
      hello,
      [&](const std::string& token) {
        CHECK(completed.empty() && client.isInFlight(handle) && std::this_thread::get_id() == here);
        tokens.push_back(token);
      },
      [&](const ChatResponse& response) {
        CHECK(!client.isInFlight(handle) && std::this_thread::get_id() == here);
        completed.push_back(response);
      });
  CHECK(handle != 0 && client.isInFlight(handle));
  until(client, [&] { return !completed.empty(); });
  CHECK(tokens == std::vector<std::string>{"Hel", "lo ", "wörld", "!"});
  CHECK(completed.size() == 1 && completed[0].full_response == "Hello wörld!");
  CHECK(!completed[0].error && !completed[0].cancelled && completed[0].error_message.empty());
  const RequestMetrics metrics = client.lastRequestMetrics();
  CHECK(metrics.tokens_generated == 4 && metrics.time_to_first_token_ms > 0);
  CHECK(metrics.latency_ms >= metrics.time_to_first_token_ms);
  CHECK(std::fabs(metrics.tokens_per_second * metrics.latency_ms / 1000 - 4) < 1e-9);
  CHECK(client.tokenUsage().total_tokens >= 4);
}

void a_refusal_of_the_daemon_is_told() {
  InferenceClient client(at(daemon_directory));
  const StructuredResponse response = complete(client, {structure.messages, "", "{\"not\":{}}"});
  CHECK(response.error && response.error_code == "invalid_request");
  CHECK(response.error_message.find("invalid_request: ") == 0);
  CHECK(chat(client, {{}}).error_message.find("messages must not be empty") != std::string::npos);
}

std::vector<std::uint8_t> wav(std::uint16_t kind, std::uint16_t n_channels, std::uint32_t rate,
                              std::uint16_t bits, const std::vector<double>& frames) {
  std::vector<std::uint8_t> bytes;
  const auto number = [&](std::uint64_t value, int n_bytes) {
    for (; n_bytes-- > 0; value >>= 8) bytes.push_back(static_cast<std::uint8_t>(value));
  };
  const auto name = [&](const char* text) { bytes.insert(bytes.end(), text, text + 4); };
  const auto size = static_cast<std::uint32_t>(frames.size() * n_channels * bits / 8);
  name("RIFF"), number(36 + 10 + size, 4), name("WAVE");
  name("LIST"), number(1, 4), number(0, 2);  // an odd chunk is padded
  name("fmt "), number(16, 4), number(kind, 2), number(n_channels, 2), number(rate, 4);
  number(rate * n_channels * bits / 8, 4), number(n_channels * bits / 8u, 2), number(bits, 2);
  name("data"), number(size, 4);
  for (const double frame : frames)
    for (int channel = 0; channel < n_channels; ++channel) {
      std::uint64_t raw = 0;
      const float narrow = static_cast<float>(frame);
      if (kind == 3 && bits == 32)
        std::memcpy(&raw, &narrow, 4);
      else if (kind == 3)
        std::memcpy(&raw, &frame, 8);
      else
        raw = static_cast<std::uint64_t>(
            std::llround(frame * (std::pow(2, bits - 1) - 1)) + (bits == 8 ? 128 : 0));
      number(raw, bits / 8);
    }
  return bytes;
}

void a_model_answers_to_a_schema() {
  InferenceClient client(at(daemon_directory));
  StructuredRequest request = structure;
  request.json_schema = R"({"type":"object","properties":{"pitch":{"type":"integer","minimum":0,
    "maximum":127}},"required":["pitch"],"additionalProperties":false})";
  const StructuredResponse response = complete(client, request);
  CHECK(!response.error && Json::parse(response.raw_json)["pitch"].natural().value_or(128) < 128);
  CHECK(client.readResult()->text() == response.raw_json);
  CHECK(client.lastRequestMetrics().tokens_generated > 0);
  request.max_tokens = 2;
  const StructuredResponse cut = complete(client, request);
  CHECK(cut.error && cut.error_message == "Response did not match schema" && !client.readResult());
}

void speech_is_written_down() {
  InferenceClient client(at(daemon_directory));
  const TranscriptionResponse response =
      transcribe(client, {wav(1, 2, 48000, 16, std::vector<double>(3 * 48000)), "wav"});
  CHECK(!response.error && response.text == "Hello wörld!");
  CHECK(isZero(client.lastRequestMetrics()));
  CHECK(transcribe(client, {std::vector<std::uint8_t>(32000), "f32"}).text == "Hello wörld!");
}

void threads_may_ask_cancel_and_poll() {
  InferenceClient client(at(daemon_directory));
  std::atomic<int> n_completed{0}, n_asked{0}, n_wrong{0};
  std::vector<std::thread> threads;
  for (int n = 0; n < 3; ++n)
    threads.emplace_back([&, n] {
      for (int i = 0; i < 12; ++i) {
        const RequestHandle handle = client.chat(hello, nullptr, [&](const ChatResponse& response) {
          ++n_completed;
          const std::string& text = response.full_response;
          if (!response.error && !response.cancelled && text != "Hello wörld!") ++n_wrong;
        });
        ++n_asked;
        if (i % 3 == n) client.cancel(handle);
        client.isInFlight(handle);
        client.lastRequestMetrics();
        client.configure(at(daemon_directory));
        client.poll();
        client.readResult();
      }
    });
  for (std::thread& thread : threads) thread.join();
  until(client, [&] { return n_completed == n_asked; });
  client.poll();
  CHECK(n_completed == 36 && n_wrong == 0);
}

// --- what can go wrong ----------------------------------------------------------------

void nobody_listens() {
  for (const std::string& directory : {daemon_directory + "/none", std::string(200, 'x')}) {
    InferenceClient client(at(directory));
    const ChatResponse response = chat(client);
    CHECK(response.error && response.error_message.find("Connection refused") == 0);
    CHECK(response.full_response.empty() && !response.cancelled);
  }
  InferenceClient client(at(daemon_directory + "/none"));
  CHECK(chat(client).error_message == "Connection refused");
  CHECK(complete(client).error_message == "Connection refused");
  CHECK(client.lastRequestMetrics().latency_ms > 0);
  CHECK(client.lastRequestMetrics().tokens_per_second == 0);
  const TranscriptionResponse heard = transcribe(client, {std::vector<std::uint8_t>(4), "f32"});
  CHECK(heard.error && heard.error_message == "Connection refused");
}

/// A listener of its own, whose backlog is filled or which never answers.
struct Listener {
  explicit Listener(int backlog) : directory(daemon_directory + "/l" + std::to_string(backlog)) {
    CHECK(::mkdir(directory.c_str(), 0700) == 0);
    sockaddr_un address = named();
    CHECK(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    CHECK(::listen(fd.get(), backlog) == 0);
  }
  ~Listener() {
    ::unlink((directory + "/infer.v2.sock").c_str());
    ::rmdir(directory.c_str());
  }
  sockaddr_un named() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (directory + "/infer.v2.sock").c_str());
    return address;
  }
  std::string directory;
  detail::Descriptor fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

void a_daemon_that_never_takes_a_connection_times_out() {
  const Listener listener(0);
  const sockaddr_un address = listener.named();
  std::vector<detail::Descriptor> fill;
  do {
    fill.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  } while (::connect(fill.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  CHECK(errno == EAGAIN);
  Config config = at(listener.directory);
  config.timeout_ms = 30;
  InferenceClient client(config);
  CHECK(chat(client).error_message == "Request timed out");
}

void a_daemon_that_never_reads_times_out() {
  const Listener listener(5);
  Config config = at(listener.directory);
  config.timeout_ms = 30;
  InferenceClient client(config);
  CHECK(chat(client, {{{"user", std::string(4 << 20, 'x')}}}).error_message == "Request timed out");
}

void silence_times_out_and_keeps_the_text() {
  Config config;
  config.timeout_ms = 30;
  InferenceClient client(config, says(piece("Hel"), true));
  const ChatResponse response = chat(client);
  CHECK(response.error && response.error_message == "Request timed out");
  CHECK(response.full_response == "Hel");
}

void an_answer_without_end_times_out() {
  Config config;
  config.request_timeout_ms = 30;
  const auto script = says("{\"type\":\"status\",\"id\":\"1\",\"status\":\"queued\"}\n");
  script->repeats = true;
  InferenceClient client(config, script);
  CHECK(chat(client).error_message == "Request timed out");
}

void what_is_no_answer_cannot_be_parsed() {
  const std::string deep(static_cast<std::size_t>(kMaxJsonDepth) + 1, '[');
  const std::string levels = deep + std::string(deep.size(), ']');
  for (const std::string& line :
       {std::string("no JSON"), std::string("[1]"), std::string("{}"), std::string(""),
        std::string("{\"type\":1}"), std::string("{\"type\":\"done\"} x"),
        std::string("{\"type\":\"frame\",\"block\":{\"type\":\"text\",\"delta\":1}}"),
        std::string("{\"type\":\"error\"}"), std::string("{\"type\":\"done\",\"x\":\"\xff\"}"),
        "{\"type\":\"done\",\"x\":" + levels + "}", std::string(kMaxLineBytes + 1, ' ')}) {
    InferenceClient client({}, says(piece("Hel") + line + "\n" + done));
    const ChatResponse response = chat(client);
    CHECK(response.error && response.error_message == "Failed to parse response");
    CHECK(response.full_response == "Hel");
  }
}

void an_end_before_the_last_frame_keeps_the_text() {
  for (const char* rest : {"", "{\"type\":\"do", "{\"type\":\"done\"}"}) {
    InferenceClient client({}, says(piece("Hel") + piece("lo") + rest));
    const ChatResponse response = chat(client);
    CHECK(response.error && response.full_response == "Hello" && !response.cancelled);
    CHECK(response.error_message == "Connection closed before the answer was complete");
    const RequestMetrics metrics = client.lastRequestMetrics();
    CHECK(metrics.tokens_generated == 2 && metrics.tokens_per_second == 0);
  }
}

void a_daemon_that_says_why_and_leaves_is_heard() {
  const Listener listener(6);
  InferenceClient client(at(listener.directory));
  for (const bool is_read : {false, true}) {
    std::thread server([&] {
      const detail::Descriptor connection(::accept(listener.fd.get(), nullptr, nullptr));
      const std::string why = R"({"type":"error","id":"","code":"frame_too_large","message":"m"})" "\n";
      char byte;
      if (is_read) CHECK(::recv(connection.get(), &byte, 1, 0) == 1);
      CHECK(::send(connection.get(), why.data(), why.size(), 0) == static_cast<ssize_t>(why.size()));
    });  // closed with most of the request unread, or before it came
    const ChatResponse response = chat(client, {{{"user", std::string(8 << 20, 'x')}}});
    server.join();
    CHECK(response.error && response.error_code == "frame_too_large");
  }
}

void a_request_that_is_wrong_is_told_by_the_callback() {
  const auto script = says(done);
  InferenceClient client({}, script);
  CHECK(chat(client, {{{"user", ""}}, NAN}).error_message == "temperature is no number");
  CHECK(chat(client, {{{"user", ""}}, 1, -1}).error_message == "max_tokens -1 is below 0");
  CHECK(complete(client, {{}, "", "{\"a\":"}).error_message == "json_schema is not valid JSON");
  CHECK(complete(client, {{}, "", "{}}\n{"}).error);
  CHECK(chat(client, {{{"user", std::string(kMaxRequestBytes, 'x')}}}).error_message ==
        "the request is over 67108864 bytes");
  const TranscriptionResponse heard = transcribe(client, {{1, 2, 3}, "flac"});
  CHECK(heard.error && heard.error_message == "audio format \"flac\" is not supported: send \"wav\" or \"f32\"");
  CHECK(transcribe(client, {{1, 2, 3}, "wav"}).error_message == "audio_data is not a WAV file");
  CHECK(transcribe(client, {{}, "f32"}).error_message == "audio_data has no samples");
  CHECK(script->n_opened == 0);
}

void a_transport_that_throws_ends_the_request() {
  const auto script = says(done);
  script->throws = "no route";
  InferenceClient client({}, script);
  CHECK(chat(client).error_message == "no route");
}

// --- structures -----------------------------------------------------------------------

void a_structure_arrives_whole() {
  InferenceClient client({}, says(piece(R"({\"pitch\": )") + piece("60}") + structure_done));
  const StructuredResponse response = complete(client);
  CHECK(!response.error && !response.cancelled && response.raw_json == "{\"pitch\": 60}");
  CHECK(client.lastRequestMetrics().tokens_generated == 7);
  CHECK(client.lastRequestMetrics().time_to_first_token_ms == 0);
  CHECK(client.tokenUsage().total_tokens == 12);
}

void a_structure_that_was_cut_did_not_match() {
  std::string incomplete = structure_done;
  incomplete.replace(incomplete.find("true"), 4, "false");
  for (const std::string& end : {incomplete, done}) {
    InferenceClient client({}, says(piece(R"({\"pitch\": 6)") + end));
    const StructuredResponse response = complete(client);
    CHECK(response.error && response.error_message == "Response did not match schema");
    CHECK(response.raw_json == "{\"pitch\": 6" && !client.readResult());
  }
  InferenceClient client({}, says(piece("{oh") + structure_done));
  CHECK(complete(client).error_message == "Failed to parse response");
}

// --- the bytes of a request -----------------------------------------------------------

void the_same_request_is_the_same_bytes() {
  const auto script = says(piece("{}") + structure_done);
  Config config;
  InferenceClient client(config, script);
  const std::string begin = R"({"id":"1","messages":[)";
  const std::string user = R"({"role":"user","content":[{"type":"text","text":"a\"\\\u000a\u0001ü"}]}])";
  const ChatRequest request{{{"user", "a\"\\\n\1ü"}}};
  chat(client, request);
  chat(client, request);
  config.temperature = 0.0f;
  config.seed = 7;
  config.model = "fast";
  client.configure(config);
  chat(client, request);
  complete(client, {{{"system", ""}}, "note", " {\"a b\" :\n [1, \"\\\" \"]}\t", -0.0f, 16});
  transcribe(client, {std::vector<std::uint8_t>(8), "f32"});
  const std::lock_guard<std::mutex> lock(script->mutex);
  CHECK(script->lines[0] == begin + user + R"(,"temperature":0.7,"max_tokens":512,"progress":true})" "\n");
  CHECK(script->lines[1] == script->lines[0]);
  CHECK(script->lines[2] == begin + user + R"(,"temperature":0,"max_tokens":512,"model":"fast","seed":7,"progress":true})" "\n");
  CHECK(script->lines[3] == begin + R"({"role":"system","content":[{"type":"text","text":""}]}])"
    R"(,"response_format":{"type":"json_schema","schema":{"a b":[1,"\" "]}},"stream":false)"
    R"(,"temperature":0,"max_tokens":16,"model":"fast","seed":7,"progress":true})" "\n");
  CHECK(script->lines[4] == begin + R"({"role":"user","content":[{"type":"audio","attachment_id":"a"}]}])"
    R"(,"attachments":[{"kind":"audio","id":"a","sample_rate":16000,"fd":0}],"timestamps":"segment")"
    R"(,"model":"fast","progress":true})" "\n");
  CHECK(script->samples.size() == 2);
}

// --- cancelling, callbacks, metrics ---------------------------------------------------

void a_cancelled_request_keeps_what_was_given() {
  const auto script = says(piece("Hel") + piece("lo"), true);
  InferenceClient client({}, script);
  int n_tokens = 0;
  std::vector<ChatResponse> got;
  RequestHandle handle = client.chat(
      hello, [&](const std::string&) { client.cancel(handle), ++n_tokens; },
      [&](const ChatResponse& each) { got.push_back(each); });
  until(client, [&] { return !got.empty(); });
  CHECK(n_tokens == 1 && got[0].cancelled && !got[0].error && got[0].full_response == "Hel");
  CHECK(!client.isInFlight(handle));
  until(client, [&] { return script->n_open == 0; });  // so the daemon stops, too
  client.cancel(handle);
  client.cancel(999);
  CHECK(client.poll() == 0 && got.size() == 1);

  std::vector<TranscriptionResponse> heard;
  handle = client.transcribe({std::vector<std::uint8_t>(8), "f32"},
                             [&](const TranscriptionResponse& each) { heard.push_back(each); });
  client.cancel(handle);
  until(client, [&] { return !heard.empty(); });
  CHECK(heard[0].error && heard[0].error_message == "Request cancelled");
  InferenceClient other({}, says(piece("Hel") + R"({"type":"done","stop_reason":"cancelled"})" "\n"));
  CHECK(chat(other).cancelled);  // by an operator
}

void a_call_returns_at_once_and_calls_nothing() {
  const auto script = says(piece("Hel") + done);
  script->takes_nothing = true;
  InferenceClient client({}, script);
  std::vector<ChatResponse> got;
  const auto on_complete = [&](const ChatResponse& each) { got.push_back(each); };
  const RequestHandle handle = client.chat(hello, nullptr, on_complete);
  CHECK(client.poll() == 0 && client.isInFlight(handle));

  const auto other = says(piece("Hel") + done);
  InferenceClient ready({}, other);
  ready.chat(hello, nullptr, on_complete);
  const RequestHandle last = ready.complete(structure, nullptr);
  until(client, [&] { return other->n_opened == 2 && other->n_open == 0; });
  CHECK(got.empty() && ready.isInFlight(last));  // callbacks are due, and only poll() calls them
  until(ready, [&] { return !ready.isInFlight(last); });
  CHECK(got.size() == 1);
}

void callbacks_may_call_the_client() {
  const auto script = says(piece("Hel") + done);
  InferenceClient client({}, script);
  int n_completed = 0;
  std::function<void(const ChatResponse&)> again = [&](const ChatResponse& response) {
    CHECK(client.poll() == 0 && !response.error);  // one at a time
    CHECK(client.lastRequestMetrics().tokens_generated == 1);
    if (++n_completed == 3) throw std::runtime_error("mine");
    client.chat(hello, nullptr, again);
    CHECK(isZero(client.lastRequestMetrics()));
  };
  client.chat(hello, nullptr, again);
  bool has_thrown = false;
  try {
    until(client, [&] { return n_completed == 4; });
  } catch (const std::runtime_error& error) {
    has_thrown = error.what() == std::string("mine");
  }
  CHECK(has_thrown && chat(client).full_response == "Hel");
}

void metrics_are_of_the_last_request() {
  const auto script = says(piece("Hel") + done);
  InferenceClient client({}, script);
  CHECK(isZero(client.lastRequestMetrics()) && client.tokenUsage().total_tokens == 0);
  chat(client);
  CHECK(client.lastRequestMetrics().tokens_per_second > 0 && client.tokenUsage().total_tokens == 12);
  client.chat(hello, nullptr, nullptr);
  CHECK(isZero(client.lastRequestMetrics()));
  until(client, [&] { return client.tokenUsage().total_tokens == 24; });
  CHECK(client.lastRequestMetrics().tokens_generated == 1);
}

void a_client_that_is_destroyed_calls_nothing() {
  const auto script = says(piece("Hel"), true);
  {
    InferenceClient client({}, script);
    for (int i = 0; i < 5; ++i)
      client.chat(hello, nullptr, [](const ChatResponse&) { std::abort(); });
    until(client, [&] { return script->n_opened == 5; });
  }
  CHECK(script->n_open == 0);
}

// --- bounds ---------------------------------------------------------------------------

void requests_in_flight_are_bounded() {
  const auto script = says("", true);
  InferenceClient client({}, script);
  std::vector<ChatResponse> got;
  const auto on_complete = [&](const ChatResponse& each) { got.push_back(each); };
  std::vector<RequestHandle> handles;
  for (std::size_t i = 0; i <= kMaxInFlight; ++i)
    handles.push_back(client.chat(hello, nullptr, on_complete));
  client.poll();
  CHECK(got.size() == 1 && got[0].error_message == "Too many requests in flight");
  client.cancel(handles[0]);
  handles.push_back(client.chat(hello, nullptr, on_complete));  // its place is free at once
  until(client, [&] { return got.size() == 2; });
  CHECK(got[1].cancelled && client.isInFlight(handles.back()));
  std::size_t n = kMaxInFlight;
  while (client.chat(hello, nullptr, nullptr) != 0) ++n;
  CHECK(n == kMaxUnpolled);
  CHECK(script->n_open <= static_cast<int>(kMaxInFlight));
}

void what_nobody_polls_is_not_received() {
  const std::size_t n_pieces = 60000;
  std::string answer;
  for (std::size_t i = 0; i < n_pieces; ++i) answer += piece("0123456789");
  const auto script = says(answer + done);
  script->piece = 10000;
  Config config;
  config.timeout_ms = 50;  // which waiting for the program does not use up
  InferenceClient client(config, script);
  std::size_t n_tokens = 0;
  std::vector<ChatResponse> got;
  client.chat(hello, [&](const std::string&) { ++n_tokens; },
              [&](const ChatResponse& each) { got.push_back(each); });
  std::size_t before = 1;
  while (before != script->n_given) {  // until it has stopped
    before = script->n_given;
    std::this_thread::sleep_for(100ms);
  }
  CHECK(before < answer.size());
  CHECK(before / piece("0123456789").size() * sizeof(detail::Event) <
        kMaxUnpolledBytes + detail::kReceivesPerTurn * script->piece * 8);
  until(client, [&] { return !got.empty(); });
  CHECK(n_tokens == n_pieces && !got[0].error && got[0].full_response.size() == 10 * n_pieces);
}

void an_answer_is_bounded() {
  const std::string text(std::size_t{1} << 20, 'x');
  const auto script = says(piece(text));
  script->repeats = true;
  InferenceClient client({}, script);
  const ChatResponse response = chat(client);
  CHECK(response.error && response.error_message == "The answer is over 8388608 bytes");
  CHECK(response.full_response.size() == kMaxAnswerBytes);
}

void frames_may_come_in_any_pieces() {
  const std::string strange = R"( { "type" : "hologram", "delta":"no", "block": {"type":"text"}})" "\n"
    R"({"type":"frame","block":{"type":"thinking","delta":"no"}})" "\n";
  for (std::size_t size : {1, 2, 3, 7}) {
    const auto script = says(strange + piece(R"(\u00fc\ud83d\ude00\ud800\"\\\/\n)") + done);
    script->piece = size;
    InferenceClient client({}, script);
    CHECK(chat(client).full_response == "ü😀\xEF\xBF\xBD\"\\/\n");
  }
}

void json_is_checked() {
  for (const char* good : {"{}", " [ 1 , -0.5e+3 , \"\\u12aB\" , null,true,false ] ", "0", "\"ü😀\"",
                           "{\"a\":{\"b\":[{}]},\"a\":1}"})
    CHECK(Json::parse(good).exists());
  for (const char* bad : {"", " ", "{", "[1,]", "{\"a\"}", "{\"a\":}", "{a:1}", "01", "-", "1.", "1e", ".5",
                          "\"", "\"\\x\"", "\"\\u12g4\"", "\"\n\"", "tru", "nul", "[1]]", "1 2", "\"\xC0\x80\"",
                          "\"\xED\xA0\x80\"", "\"\xF4\x90\x80\x80\"", "\"\xE0\x80\x80\"", "\"\xC3", "\"\x80\""})
    CHECK(!Json::parse(bad).exists());
  const auto nested = [](int n) {
    return std::string(static_cast<std::size_t>(n), '[') + std::string(static_cast<std::size_t>(n), ']');
  };
  CHECK(Json::parse(nested(kMaxJsonDepth)).exists());
  CHECK(!Json::parse(nested(kMaxJsonDepth + 1)).exists());
  CHECK(!Json::parse(std::string(8 << 20, '[')).exists());
  const std::string text = R"({"a":{"b":1},"c\u0064":"x","n":[1,2.5,-3,"y"],"big":18446744073709551616,"huge":1e999})";
  const Json json = Json::parse(text);
  CHECK(json["a"]["b"].natural() == 1u && !json["b"].exists() && json["cd"].is("x"));
  CHECK(!json["big"].natural() && !json["huge"].number() && !json["a"].number() && !json["x"]["y"].exists());
  double sum = 0;
  json["n"].forEach([&](const Json& each) { sum += each.number().value_or(100); });
  CHECK(sum == 100.5);
}

void recordings_are_read_as_samples() {
  std::vector<double> sine;
  for (int i = 0; i < 4410; ++i) sine.push_back(0.5 * std::sin(2 * 3.14159265358979 * 440 * i / 44100));
  const struct {
    std::uint16_t kind, n_channels, bits;
    float tolerance;
  } formats[] = {{1, 1, 8, 0.02F}, {1, 2, 16, 0.004F}, {1, 1, 24, 0.004F}, {1, 3, 32, 0.004F},
                 {3, 2, 32, 0.004F}, {3, 1, 64, 0.004F}};
  for (const auto& format : formats) {
    const auto script = says(done);
    InferenceClient client({}, script);
    CHECK(!transcribe(client, {wav(format.kind, format.n_channels, 44100, format.bits, sine), "wav"}).error);
    CHECK(script->samples.size() == 1600);
    for (std::size_t i = 50; i < 1550; ++i) {  // beyond both ends there is silence
      const double expected = 0.5 * std::sin(2 * 3.14159265358979 * 440 * static_cast<double>(i) / 16000);
      CHECK(std::fabs(script->samples[i] - expected) < static_cast<double>(format.tolerance));
    }
  }
  std::vector<double> high;  // would be heard at 4 kHz, were it not filtered out
  for (int i = 0; i < 48000; ++i) high.push_back(std::sin(2 * 3.14159265358979 * 12000 * i / 48000));
  const auto script = says(done);
  InferenceClient client({}, script);
  transcribe(client, {wav(1, 1, 48000, 16, high), "wav"});
  for (std::size_t i = 50; i < 15950; ++i) CHECK(std::fabs(script->samples[i]) < 0.001F);
  for (std::size_t cut : {0u, 11u, 12u, 20u, 40u, 45u, 53u, 54u, 55u}) {
    auto bytes = wav(1, 2, 48000, 16, high);
    bytes.resize(cut);
    CHECK(transcribe(client, {bytes, "wav"}).error);
  }
}

// --- results for a thread that must not wait ------------------------------------------

struct Note {
  RequestHandle handle;
  int pitch;
};

bool readNote(RequestHandle handle, const Json& json, Note& note) {
  note = {handle, static_cast<int>(json["pitch"].number().value_or(-1))};
  return note.pitch >= 0;
}

void results_are_read_without_a_lock_or_memory() {
  const auto script = says(piece(R"({\"pitch\": 60})") + structure_done);
  BasicInferenceClient<Note> client({}, readNote, script);
  std::atomic<bool> is_over{false};
  std::vector<RequestHandle> read;
  read.reserve(100);
  std::thread audio([&] {
    is_counting = true;
    for (bool was_over = false; !was_over;) {
      was_over = is_over;
      while (const auto note = client.readResult()) read.push_back(note->pitch == 60 ? note->handle : 0);
    }
    is_counting = false;
    CHECK(n_allocations == 0);
  });
  std::vector<RequestHandle> asked;
  for (int i = 0; i < 40; ++i) {
    bool is_done = false;
    asked.push_back(client.complete(structure, [&](const StructuredResponse&) { is_done = true; }));
    until(client, [&] { return is_done; });
  }
  is_over = true;
  audio.join();
  CHECK(read.size() + client.droppedResults() == asked.size());  // a slow reader misses some
  CHECK(std::includes(asked.begin(), asked.end(), read.begin(), read.end()) && read[0] == asked[0]);
}

void results_that_nobody_reads_are_left_out_and_counted() {
  InferenceClient client({}, says(piece(R"({\"pitch\": 60})") + structure_done));
  for (std::size_t i = 0; i < kMaxResults + 2; ++i) complete(client);
  CHECK(client.droppedResults() == 2);
  for (std::size_t i = 0; i < kMaxResults; ++i) {
    const auto result = client.readResult();
    CHECK(result && result->handle == i + 1 && result->text() == "{\"pitch\": 60}");
  }
  CHECK(!client.readResult());
  const std::string bytes(StructuredResult::kMaxBytes - 1, 'x');  // and two quotes: one over
  InferenceClient other({}, says(piece("\\\"" + bytes + "\\\"") + structure_done));
  CHECK(!complete(other).error && other.droppedResults() == 1 && !other.readResult());
}

const struct {
  const char* name;
  void (*run)();
} cases[] = {
#define CASE(name) {#name, name}
    CASE(a_chat_streams_and_completes_once),
    CASE(a_refusal_of_the_daemon_is_told),
    CASE(a_model_answers_to_a_schema),
    CASE(speech_is_written_down),
    CASE(threads_may_ask_cancel_and_poll),
    CASE(nobody_listens),
    CASE(a_daemon_that_never_takes_a_connection_times_out),
    CASE(a_daemon_that_never_reads_times_out),
    CASE(silence_times_out_and_keeps_the_text),
    CASE(an_answer_without_end_times_out),
    CASE(what_is_no_answer_cannot_be_parsed),
    CASE(an_end_before_the_last_frame_keeps_the_text),
    CASE(a_daemon_that_says_why_and_leaves_is_heard),
    CASE(a_request_that_is_wrong_is_told_by_the_callback),
    CASE(a_transport_that_throws_ends_the_request),
    CASE(a_structure_arrives_whole),
    CASE(a_structure_that_was_cut_did_not_match),
    CASE(the_same_request_is_the_same_bytes),
    CASE(a_cancelled_request_keeps_what_was_given),
    CASE(a_call_returns_at_once_and_calls_nothing),
    CASE(callbacks_may_call_the_client),
    CASE(metrics_are_of_the_last_request),
    CASE(a_client_that_is_destroyed_calls_nothing),
    CASE(requests_in_flight_are_bounded),
    CASE(what_nobody_polls_is_not_received),
    CASE(an_answer_is_bounded),
    CASE(frames_may_come_in_any_pieces),
    CASE(json_is_checked),
    CASE(recordings_are_read_as_samples),
    CASE(results_are_read_without_a_lock_or_memory),
    CASE(results_that_nobody_reads_are_left_out_and_counted),
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  ::alarm(240);  // a hang is a failure
  daemon_directory = argv[1];
  const std::set<std::string> wanted(argv + 2, argv + argc);
  int n_failed = 0;
  for (const auto& each : cases) {
    if (!wanted.empty() && wanted.count(each.name) == 0) continue;
    try {
      each.run();
      std::printf("ok %s\n", each.name);
    } catch (const std::exception& error) {
      std::printf("FAILED %s: %s\n", each.name, error.what());
      ++n_failed;
    }
    std::fflush(stdout);
  }
  return n_failed ? 1 : 0;
}
