// A client of inferd for programs that draw, play or listen and must not wait.
//
//   inferd::InferenceClient client;
//   client.chat({{{"user", "Hello"}}}, onToken, onComplete);   // returns at once
//   client.poll();   // in your loop: calls what is due, never waits
//
// Headers alone, C++17, Linux, no dependency; link with -pthread. README.md says more.

#ifndef INFERD_CLIENT_HPP
#define INFERD_CLIENT_HPP

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <csignal>
#include <fcntl.h>
#include <poll.h>

#include "exchange.hpp"
#include "result_queue.hpp"
#include "transport.hpp"
#include "types.hpp"

namespace inferd {

/// Requests in flight of one client, each with a connection: one user may have a few
/// waiting in the daemon's queue, and 16 fill it.
inline constexpr std::size_t kMaxInFlight = 16;
/// Requests whose onComplete is due. Over that, because nobody calls poll(), a request is
/// not even refused: its handle is 0 and nothing is called.
inline constexpr std::size_t kMaxUnpolled = 1024;
/// Bytes of tokens and answers that wait for poll(), each with what it takes to queue it.
/// Over that nothing is received, so that the kernel and then the daemon hold the rest.
inline constexpr std::size_t kMaxUnpolledBytes = std::size_t{4} << 20;
/// Milliseconds between two tries where a descriptor cannot tell when there is something.
inline constexpr int kRetryMs = 2;

namespace detail {

/// What poll() calls next.
struct Event {
  RequestHandle handle = 0;
  bool is_token = false;
  bool is_cancel = false;
  std::string token;
  Outcome outcome;
  Clock::time_point at{};

  std::size_t bytes() const { return sizeof(Event) + token.size() + outcome.text.size(); }
};

/// What a request has in the program that asked.
struct Asked {
  std::function<void(const std::string&)> on_token;
  std::function<void(Outcome&)> on_complete;
  bool has_metrics = false;
  Clock::time_point started{};
  std::string delivered;  // what on_token was given
  std::size_t n_tokens = 0;
  double first_token_ms = 0;
  bool is_running = false;  // it is, or will be, one of the client's thread
  bool is_cancelled = false;
};

inline double msBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

/// All of the client but the type of its results: one thread that talks to the daemon, and
/// the queues between it and the program.
class Engine {
 public:
  using OnStructure = std::function<void(RequestHandle, const std::string&)>;

  Engine(const Config& config, std::shared_ptr<Transport> transport, OnStructure on_structure)
      : transport_(std::move(transport)), on_structure_(std::move(on_structure)) {
    configure(config);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
      throw std::system_error(errno, std::generic_category(), "inferd: pipe2");
    wake_read_ = Descriptor(ends[0]);
    wake_write_ = Descriptor(ends[1]);
    start();
  }

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  ~Engine() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_stopping_ = true;
    }
    wake();
    thread_.join();
  }

  void configure(const Config& config) {
    auto directories = config.directory.empty() ? usualDirectories()
                                                : std::vector<std::string>{config.directory};
    const std::lock_guard<std::mutex> lock(mutex_);
    config_ = config;
    directories_ = std::move(directories);
  }

  RequestHandle ask(AnyRequest request, Asked asked) {
    const auto now = Clock::now();
    asked.started = now;
    RequestHandle handle = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (asked_.size() >= kMaxUnpolled) return 0;
      handle = ++last_handle_;
      if (asked.has_metrics) {
        metrics_ = RequestMetrics();
        metrics_of_ = handle;
      }
      const bool is_full = n_in_flight_ >= kMaxInFlight;
      asked.is_running = !is_full;
      asked_.emplace(handle, std::move(asked));
      if (is_full) {
        pushOutcome(handle, failure("Too many requests in flight"), now);
        return handle;
      }
      ++n_in_flight_;
      jobs_.push_back({handle, std::move(request), config_, directories_, now});
    }
    wake();
    return handle;
  }

  void cancel(RequestHandle handle) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = asked_.find(handle);
      if (found == asked_.end() || found->second.is_cancelled) return;
      if (found->second.is_running) cancels_.push_back(handle);
      Outcome outcome;
      outcome.cancelled = true;
      outcome.text = found->second.delivered;
      pushOutcome(handle, std::move(outcome), Clock::now());
      events_.back().is_cancel = true;
      found->second.is_cancelled = true;
    }
    wake();
  }

  bool isInFlight(RequestHandle handle) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return asked_.count(handle) > 0;
  }

  RequestMetrics metrics() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return metrics_;
  }

  TokenUsage usage() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return usage_;
  }

  std::size_t poll() {
    if (is_polling_.exchange(true)) return 0;  // called by a callback, or by another thread
    struct Leave {
      std::atomic<bool>& flag;
      ~Leave() { flag = false; }
    } const leave{is_polling_};
    std::size_t n_called = 0;
    for (std::size_t n_left = waiting(); n_left > 0; --n_left)
      if (callNext()) ++n_called;
    return n_called;
  }

 private:
  // --- in the program's threads ---

  std::size_t waiting() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return events_.size();
  }

  /// Takes one event and calls its function, without the lock. Only poll() removes from
  /// `asked_`, so what `found` points to stays.
  bool callNext() {
    Event event;
    Asked done;
    Asked* found = nullptr;
    bool has_room = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (events_.empty()) return false;
      event = std::move(events_.front());
      events_.pop_front();
      const bool was_full = n_unpolled_bytes_ > kMaxUnpolledBytes;
      n_unpolled_bytes_ -= event.bytes();
      has_room = was_full && n_unpolled_bytes_ <= kMaxUnpolledBytes;
      const auto asked = asked_.find(event.handle);
      if (asked != asked_.end() && asked->second.is_cancelled == event.is_cancel) {
        found = &asked->second;
        if (event.is_token) {
          note(*found, event);
        } else {
          finish(event.handle, *found, event.outcome);
          done = std::move(*found);
          asked_.erase(asked);
        }
      }
    }
    if (has_room) wake();
    if (!found) return false;
    if (event.is_token)
      found->on_token(event.token);
    else
      done.on_complete(event.outcome);
    return true;
  }

  static void note(Asked& asked, const Event& event) {
    if (asked.n_tokens++ == 0) asked.first_token_ms = msBetween(asked.started, event.at);
    asked.delivered += event.token;
  }

  void finish(RequestHandle handle, const Asked& asked, Outcome& outcome) {
    if (!asked.has_metrics) return;
    usage_.total_tokens += outcome.input_tokens + outcome.output_tokens;
    if (handle != metrics_of_) return;  // a later one has begun
    metrics_.latency_ms = msBetween(asked.started, outcome.at);
    metrics_.time_to_first_token_ms = asked.first_token_ms;
    metrics_.tokens_generated = asked.n_tokens > 0 ? asked.n_tokens : outcome.output_tokens;
    if (!outcome.error && metrics_.latency_ms > 0)
      metrics_.tokens_per_second =
          static_cast<double>(metrics_.tokens_generated) / (metrics_.latency_ms / 1000);
  }

  /// With the lock.
  void pushOutcome(RequestHandle handle, Outcome outcome, Clock::time_point now) {
    const auto asked = asked_.find(handle);
    if (asked == asked_.end() || asked->second.is_cancelled) return;
    if (std::exchange(asked->second.is_running, false)) --n_in_flight_;
    outcome.at = now;
    Event event;
    event.handle = handle;
    event.outcome = std::move(outcome);
    n_unpolled_bytes_ += event.bytes();
    events_.push_back(std::move(event));
  }

  void wake() const {
    const char byte = 0;
    // A full pipe wakes as well as one more byte in it.
    [[maybe_unused]] const ssize_t n = ::write(wake_write_.get(), &byte, 1);
  }

  /// The program's handlers of signals do not run in the client's thread.
  void start() {
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { run(); });
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  // --- in the client's thread ---

  void run() {
    std::vector<std::unique_ptr<Exchange>> active;
    std::vector<char> buffer(kReceiveBytes);
    const Exchange::OnText on_text = [this](RequestHandle handle, std::string text) {
      pushToken(handle, std::move(text));
    };
    for (bool is_paused = false; takeWork(active, is_paused);) {
      for (auto& exchange : active)
        guarded(*exchange, [&] { exchange->step(Clock::now(), is_paused, buffer.data(), on_text); });
      for (auto& exchange : active)
        if (exchange->isOver()) complete(*exchange);
      active.erase(std::remove_if(active.begin(), active.end(),
                                  [](const auto& each) { return each->isOver(); }),
                   active.end());
      wait(active, is_paused);
    }
  }

  /// What is thrown (too little memory, or by a transport) ends one request.
  template <class Step>
  static void guarded(Exchange& exchange, Step step) {
    try {
      step();
    } catch (const std::exception& error) {
      exchange.fail(error.what());
    } catch (...) {
      exchange.fail("The transport threw something");
    }
  }

  /// Takes new requests and drops cancelled ones; false: the client is destroyed.
  bool takeWork(std::vector<std::unique_ptr<Exchange>>& active, bool& is_paused) {
    std::vector<Job> jobs;
    std::vector<RequestHandle> cancels;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (is_stopping_) return false;
      jobs.swap(jobs_);
      cancels.swap(cancels_);
      is_paused = n_unpolled_bytes_ > kMaxUnpolledBytes;
    }
    const auto is_cancelled = [&cancels](RequestHandle handle) {
      return std::find(cancels.begin(), cancels.end(), handle) != cancels.end();
    };
    active.erase(std::remove_if(active.begin(), active.end(),
                                [&](const auto& each) { return is_cancelled(each->handle()); }),
                 active.end());
    for (Job& job : jobs)
      if (!is_cancelled(job.handle)) begin(std::move(job), active);
    return true;
  }

  void begin(Job job, std::vector<std::unique_ptr<Exchange>>& active) {
    const RequestHandle handle = job.handle;
    std::string why;
    try {
      active.push_back(std::make_unique<Exchange>(std::move(job), *transport_));
      return;
    } catch (const std::exception& error) {
      why = error.what();
    } catch (...) {
      why = "The transport threw something";
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    pushOutcome(handle, failure(why), Clock::now());
  }

  void complete(Exchange& exchange) {
    Outcome outcome = exchange.take();
    if (exchange.isStructured() && !outcome.error && !outcome.cancelled)
      on_structure_(exchange.handle(), outcome.text);
    const std::lock_guard<std::mutex> lock(mutex_);
    pushOutcome(exchange.handle(), std::move(outcome), Clock::now());
  }

  void pushToken(RequestHandle handle, std::string text) {
    Event event;
    event.handle = handle;
    event.is_token = true;
    event.token = std::move(text);
    event.at = Clock::now();
    const std::lock_guard<std::mutex> lock(mutex_);
    n_unpolled_bytes_ += event.bytes();
    events_.push_back(std::move(event));
  }

  /// Until a connection is ready, a deadline is reached, or the program wants something.
  void wait(const std::vector<std::unique_ptr<Exchange>>& active, bool is_paused) {
    std::vector<pollfd> fds{{wake_read_.get(), POLLIN, 0}};
    int timeout_ms = -1;
    const auto at_most = [&timeout_ms](int ms) {
      timeout_ms = timeout_ms < 0 ? ms : std::min(timeout_ms, ms);
    };
    for (const auto& exchange : active) {
      const double left_ms = msBetween(Clock::now(), exchange->deadline());
      at_most(static_cast<int>(std::min(std::max(std::ceil(left_ms), 0.0), 1e6)));
      if (exchange->isBusy()) at_most(0);
      if (exchange->isBusy() || (exchange->isSent() && is_paused)) continue;
      if (exchange->fd() < 0)
        at_most(kRetryMs);
      else
        fds.push_back({exchange->fd(), static_cast<short>(exchange->isSent() ? POLLIN : POLLOUT), 0});
    }
    ::poll(fds.data(), fds.size(), timeout_ms);
    char bytes[64];
    while (fds[0].revents && ::read(wake_read_.get(), bytes, sizeof bytes) > 0) {
    }
  }

  const std::shared_ptr<Transport> transport_;
  const OnStructure on_structure_;
  Descriptor wake_read_;
  Descriptor wake_write_;
  std::atomic<bool> is_polling_{false};

  mutable std::mutex mutex_;  // guards all below but the thread; held for a few moves
  Config config_;
  std::vector<std::string> directories_;
  RequestHandle last_handle_ = 0;
  std::map<RequestHandle, Asked> asked_;
  std::vector<Job> jobs_;
  std::vector<RequestHandle> cancels_;
  std::deque<Event> events_;
  std::size_t n_unpolled_bytes_ = 0;
  std::size_t n_in_flight_ = 0;
  RequestHandle metrics_of_ = 0;
  RequestMetrics metrics_;
  TokenUsage usage_;
  bool is_stopping_ = false;

  std::thread thread_;
};

}  // namespace detail

/// Turns a valid structured answer into what readResult() gives; false leaves it out.
/// It runs in the client's thread.
template <class Result>
using ParseResult = std::function<bool(RequestHandle, const Json&, Result&)>;

/// Copies the answer as it is written.
inline bool copyResult(RequestHandle handle, const Json& json, StructuredResult& result) {
  if (json.raw().size() > StructuredResult::kMaxBytes) return false;
  result.handle = handle;
  result.size = static_cast<std::uint32_t>(json.raw().size());
  std::memcpy(result.json, json.raw().data(), json.raw().size());
  result.json[json.raw().size()] = 0;
  return true;
}

/// The client. All of it may be called from any thread, but readResult() from one alone.
///
/// Nothing waits for the daemon and nothing throws, except for the constructor, where
/// this machine has no thread or descriptor left, what a callback throws, and
/// std::bad_alloc. Callbacks run in poll(), one at a time, and may call all of this; they
/// may not destroy the client. When it is destroyed, requests in flight are cancelled and
/// their callbacks are not called any more.
template <class Result>
class BasicInferenceClient {
 public:
  explicit BasicInferenceClient(const Config& config, ParseResult<Result> parse,
                                std::shared_ptr<Transport> transport = nullptr)
      : parse_(std::move(parse)),
        engine_(config, transport ? std::move(transport) : std::make_shared<UnixTransport>(),
                [this](RequestHandle handle, const std::string& text) { queue(handle, text); }) {}

  /// With a Result of its own, a client needs a function that makes one.
  template <class Same = Result,
            class = std::enable_if_t<std::is_same_v<Same, StructuredResult>>>
  explicit BasicInferenceClient(const Config& config = {},
                                std::shared_ptr<Transport> transport = nullptr)
      : BasicInferenceClient(config, copyResult, std::move(transport)) {}

  /// Streams an answer: `onToken` for each piece, then `onComplete` once.
  RequestHandle chat(ChatRequest request, std::function<void(const std::string& token)> onToken,
                     std::function<void(const ChatResponse&)> onComplete) {
    detail::Asked asked = with<ChatResponse>(std::move(onComplete), &ChatResponse::full_response);
    asked.on_token = [call = std::move(onToken)](const std::string& token) {
      if (call) call(token);
    };
    asked.has_metrics = true;
    return engine_.ask(std::move(request), std::move(asked));
  }

  /// Asks for JSON that satisfies a schema, and calls `onComplete` once with all of it.
  RequestHandle complete(StructuredRequest request,
                         std::function<void(const StructuredResponse&)> onComplete) {
    detail::Asked asked =
        with<StructuredResponse>(std::move(onComplete), &StructuredResponse::raw_json);
    asked.has_metrics = true;
    return engine_.ask(std::move(request), std::move(asked));
  }

  /// Writes speech down. Move a long recording in, so that it is not copied.
  RequestHandle transcribe(TranscriptionRequest request,
                           std::function<void(const TranscriptionResponse&)> onComplete) {
    return engine_.ask(std::move(request), with<TranscriptionResponse>(
                                               std::move(onComplete), &TranscriptionResponse::text));
  }

  /// Ends a request: the next poll() calls its onComplete with `cancelled`, and no onToken.
  void cancel(RequestHandle handle) { engine_.cancel(handle); }

  /// Whether its onComplete is still to be called.
  bool isInFlight(RequestHandle handle) const { return engine_.isInFlight(handle); }

  /// For requests from now on.
  void configure(const Config& config) { engine_.configure(config); }

  /// Of the chat or structured request that began last; zeros until it has ended.
  RequestMetrics lastRequestMetrics() const { return engine_.metrics(); }

  /// Of all chats and structured requests that have ended.
  TokenUsage tokenUsage() const { return engine_.usage(); }

  /// Calls the callbacks that are due and returns their number. It never waits.
  std::size_t poll() { return engine_.poll(); }

  /// The next structured answer, for one thread that must not wait, such as an audio
  /// callback: no lock, no allocation, no system call.
  std::optional<Result> readResult() noexcept {
    std::optional<Result> result(std::in_place);
    if (!results_.pop(*result)) result.reset();
    return result;
  }

  /// Structured answers that readResult() does not give: its queue was full, or they could
  /// not be made into a Result.
  std::size_t droppedResults() const noexcept { return results_.dropped() + n_unparsed_; }

 private:
  template <class Response>
  static detail::Asked with(std::function<void(const Response&)> on_complete,
                            std::string Response::*text) {
    detail::Asked asked;
    asked.on_complete = [call = std::move(on_complete), text](detail::Outcome& outcome) {
      Response response;
      response.*text = std::move(outcome.text);
      response.error = outcome.error;
      response.error_message = std::move(outcome.message);
      response.error_code = std::move(outcome.code);
      setCancelled(response, outcome.cancelled);
      if (call) call(response);
    };
    return asked;
  }

  template <class Response>
  static void setCancelled(Response& response, bool cancelled) {
    if constexpr (std::is_same_v<Response, TranscriptionResponse>) {
      if (!cancelled) return;
      response.error = true;  // it has no other field for it
      response.error_message = "Request cancelled";
    } else {
      response.cancelled = cancelled;
    }
  }

  void queue(RequestHandle handle, const std::string& text) noexcept {
    try {
      Result result{};
      if (parse_(handle, Json::parse(text), result))
        results_.push(result);
      else
        ++n_unparsed_;
    } catch (...) {
      ++n_unparsed_;
    }
  }

  const ParseResult<Result> parse_;
  ResultQueue<Result> results_;
  std::atomic<std::size_t> n_unparsed_{0};
  detail::Engine engine_;  // last: its thread uses the others
};

using InferenceClient = BasicInferenceClient<StructuredResult>;

}  // namespace inferd

#endif
