// How lines travel: an interface that tests replace, and the daemon's Unix sockets.

#ifndef INFERD_TRANSPORT_HPP
#define INFERD_TRANSPORT_HPP

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pwd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace inferd {

/// What one step of sending or receiving did. No bytes, no end and no failure: nothing is
/// possible right now.
struct Moved {
  std::size_t n_bytes = 0;
  bool ended = false;   ///< of receiving: the other side sends no more
  std::string failure;  ///< if not empty: why the connection is of no use any more
};

/// A connection for one request. It is used by the client's thread alone, which none of
/// these may block.
class Connection {
 public:
  virtual ~Connection() = default;

  /// Sends the beginning of `bytes`; a `descriptor` that is not -1 goes with the first.
  virtual Moved send(std::string_view bytes, int descriptor) = 0;

  virtual Moved receive(char* buffer, std::size_t size) = 0;

  /// What poll(2) waits for. -1: the client asks again every few milliseconds.
  virtual int fd() const { return -1; }
};

/// Makes connections; a test hands the client one of its own.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Never blocks: a connection may be made in its first send().
  virtual std::unique_ptr<Connection> open(const std::vector<std::string>& directories) = 0;
};

/// The directories where a daemon's sockets may be, in order, by the environment.
inline std::vector<std::string> usualDirectories() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  const std::string runtime = variable("XDG_RUNTIME_DIR"), home = variable("HOME");
  std::string own = "/tmp/inferd-" + std::to_string(getuid());
  if (!runtime.empty())
    own = runtime + "/inferd";
  else if (!home.empty())
    own = home + "/.inferd/run";
  return {own, "/run/inferd"};
}

namespace detail {

/// The words for a daemon that is not there.
inline constexpr const char* kRefused = "Connection refused";
/// The socket of typed content blocks, the only one that this client needs.
inline constexpr const char* kLeaf = "/infer.v2.sock";

/// A descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Whom we talk to: the uids in INFERD_TRUST_UID, which has them separated by commas.
inline std::vector<uid_t> trustedUids() {
  std::vector<uid_t> uids;
  const char* at = std::getenv("INFERD_TRUST_UID");
  while (at && *at) {
    char* end = nullptr;
    const unsigned long uid = std::strtoul(at, &end, 10);
    if (end == at || (*end && *end != ',')) break;
    uids.push_back(static_cast<uid_t>(uid));
    at = *end ? end + 1 : end;
  }
  return uids;
}

class UnixConnection final : public Connection {
 public:
  UnixConnection(std::vector<std::string> directories, std::vector<uid_t> trusted)
      : directories_(std::move(directories)), trusted_(std::move(trusted)) {}

  Moved send(std::string_view bytes, int descriptor) override {
    Moved moved;
    if (!is_connected_) moved.failure = connect();
    if (!is_connected_ || !moved.failure.empty()) return moved;
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char aside[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
      message.msg_control = aside;
      message.msg_controllen = sizeof aside;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof descriptor);
      std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    return moved_by(::sendmsg(socket_.get(), &message, MSG_NOSIGNAL));
  }

  Moved receive(char* buffer, std::size_t size) override {
    if (!is_connected_) return {0, true, ""};
    const ssize_t n = ::recv(socket_.get(), buffer, size, 0);
    Moved moved = moved_by(n);
    moved.ended = n == 0;
    return moved;
  }

  /// Before it is connected there is nothing to wait for: a full backlog tells nobody
  /// when it has room.
  int fd() const override { return is_connected_ ? socket_.get() : -1; }

 private:
  static Moved moved_by(ssize_t n) {
    Moved moved;
    if (n >= 0)
      moved.n_bytes = static_cast<std::size_t>(n);
    else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ENOBUFS)
      moved.failure = std::strerror(errno);
    return moved;
  }

  /// Tries each directory; gives why none does, or nothing: then try again if it is not
  /// connected yet.
  std::string connect() {
    std::string why = kRefused;
    for (const std::string& directory : directories_) {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      const std::string path = directory + kLeaf;
      if (path.size() >= sizeof address.sun_path) {
        why = std::string(kRefused) + ": the path is longer than a socket's may be: " + path;
        continue;
      }
      std::memcpy(address.sun_path, path.data(), path.size());
      socket_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (socket_.get() < 0) return std::string("No socket: ") + std::strerror(errno);
      if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
        const std::string wrong = refusal(directory);
        is_connected_ = wrong.empty();
        return wrong;
      }
      if (errno == EAGAIN || errno == EINTR) return "";  // its backlog is full
      if (errno == EACCES) why = std::string(kRefused) + ": no permission for " + path;
    }
    return why;
  }

  /// Asks the kernel who listens; gives why that is nobody to talk to.
  std::string refusal(const std::string& directory) const {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
      return std::string("Who listens is not known: ") + std::strerror(errno);
    if (peer.uid == 0 || peer.uid == ::geteuid()) return "";
    for (const uid_t uid : trusted_)
      if (uid == peer.uid) return "";
    if (directory == "/run/inferd" && isServiceUser(peer.uid)) return "";
    const std::string uid = std::to_string(peer.uid);
    return std::string(kRefused) + ": uid " + uid + " listens; to trust it, set INFERD_TRUST_UID=" +
           uid;
  }

  static bool isServiceUser(uid_t uid) {
    passwd entry{};
    passwd* found = nullptr;
    char buffer[4096];  // one line of /etc/passwd
    return ::getpwnam_r("inferd", &entry, buffer, sizeof buffer, &found) == 0 && found &&
           found->pw_uid == uid;
  }

  std::vector<std::string> directories_;
  std::vector<uid_t> trusted_;
  Descriptor socket_;
  bool is_connected_ = false;
};

}  // namespace detail

/// Speaks to a daemon of this machine.
class UnixTransport final : public Transport {
 public:
  UnixTransport() : trusted_(detail::trustedUids()) {}

  std::unique_ptr<Connection> open(const std::vector<std::string>& directories) override {
    return std::make_unique<detail::UnixConnection>(directories, trusted_);
  }

 private:
  std::vector<uid_t> trusted_;
};

}  // namespace inferd

#endif
