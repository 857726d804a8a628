// JSON as the frames of inferd need it: checked once, then read where it stands.
//
// Nothing is copied and no tree is built, so reading takes no memory that a peer could
// choose. Checking a text is linear in its length, and so is looking up one member.

#ifndef INFERD_JSON_HPP
#define INFERD_JSON_HPP

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <locale>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace inferd {

/// Levels of arrays and objects in a text. Deeper ones are refused, because each level
/// takes a frame of the stack; the daemon's own frames have 6, answers to schemas a few.
inline constexpr int kMaxJsonDepth = 128;

namespace detail {

inline bool isSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
inline bool isDigit(char c) { return c >= '0' && c <= '9'; }

inline int hexValue(char c) {
  if (isDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Goes over JSON from left to right and tells whether it is valid (RFC 8259).
class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text)
      : at_(text.data()), end_(text.data() + text.size()) {}

  const char* at() const { return at_; }
  bool atEnd() const { return at_ == end_; }

  void space() {
    while (at_ != end_ && isSpace(*at_)) ++at_;
  }

  /// Skips one character if it is this one.
  bool take(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  /// Skips one value; false if none is there, or one that is nested too deeply.
  bool value(int depth = 0) {
    if (at_ == end_) return false;
    switch (*at_) {
      case '{':
        return depth < kMaxJsonDepth && items('}', true, depth + 1);
      case '[':
        return depth < kMaxJsonDepth && items(']', false, depth + 1);
      case '"':
        return string();
      case 't':
        return literal("true");
      case 'f':
        return literal("false");
      case 'n':
        return literal("null");
      default:
        return number();
    }
  }

  bool string() {
    if (!take('"')) return false;
    while (at_ != end_) {
      const auto c = static_cast<unsigned char>(*at_);
      if (c == '"') return ++at_, true;
      if (c < 0x20) return false;
      if (c == '\\' ? !escape() : c < 0x80 ? (++at_, false) : !character()) return false;
    }
    return false;
  }

 private:
  bool items(char close, bool has_keys, int depth) {
    ++at_;
    space();
    if (take(close)) return true;
    do {
      space();
      if (has_keys) {
        if (!string()) return false;
        space();
        if (!take(':')) return false;
        space();
      }
      if (!value(depth)) return false;
      space();
    } while (take(','));
    return take(close);
  }

  bool escape() {
    ++at_;
    if (at_ == end_) return false;
    const char c = *at_++;
    if (c != 'u') return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    for (int i = 0; i < 4; ++i, ++at_)
      if (at_ == end_ || hexValue(*at_) < 0) return false;
    return true;
  }

  /// Skips one character of UTF-8 that has several bytes.
  bool character() {
    const auto byte = [this](int i) { return static_cast<unsigned char>(at_[i]); };
    const unsigned first = byte(0);
    const int n_more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || end_ - at_ <= n_more) return false;
    for (int i = 1; i <= n_more; ++i)
      if ((byte(i) & 0xC0) != 0x80) return false;
    const unsigned second = byte(1);
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
      return false;
    at_ += n_more + 1;
    return true;
  }

  bool literal(std::string_view word) {
    if (std::string_view(at_, static_cast<std::size_t>(end_ - at_)).substr(0, word.size()) != word)
      return false;
    at_ += word.size();
    return true;
  }

  bool digits() {
    const char* begin = at_;
    while (at_ != end_ && isDigit(*at_)) ++at_;
    return at_ != begin;
  }

  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      return digits();
    }
    return true;
  }

  const char* at_;
  const char* end_;
};

inline void appendUtf8(std::string& out, unsigned code) {
  const auto put = [&out](unsigned byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) return put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  if (code < 0x10000)
    return put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  put(0xF0 | code >> 18);
  put(0x80 | (code >> 12 & 0x3F));
  put(0x80 | (code >> 6 & 0x3F));
  put(0x80 | (code & 0x3F));
}

}  // namespace detail

/// A value in a text of JSON. It refers to that text, which has to outlive it.
///
/// One that is not there (a member of no such name, an invalid text) is a Json as well:
/// exists() is false, and all that is asked of it gives nothing.
class Json {
 public:
  Json() = default;

  /// Checks a text: one value, valid to its end. Otherwise the result does not exist.
  static Json parse(std::string_view text) {
    detail::JsonScanner scanner(text);
    scanner.space();
    const char* begin = scanner.at();
    if (!scanner.value()) return {};
    const auto size = static_cast<std::size_t>(scanner.at() - begin);
    scanner.space();
    return scanner.atEnd() ? Json(std::string_view(begin, size)) : Json();
  }

  bool exists() const { return !raw_.empty(); }
  bool isObject() const { return begins('{'); }
  bool isArray() const { return begins('['); }
  bool isString() const { return begins('"'); }
  bool isTrue() const { return raw_ == "true"; }

  /// The text of the value as it is written.
  std::string_view raw() const { return raw_; }

  /// The member of an object; of several with that name, the last.
  Json operator[](std::string_view key) const {
    Json found;
    if (!isObject()) return found;
    detail::JsonScanner scanner(raw_);
    scanner.take('{');
    for (scanner.space(); !scanner.take('}'); scanner.space()) {
      const Json name = next(scanner, true);
      scanner.space();
      scanner.take(':');
      scanner.space();
      const Json value = next(scanner, false);
      if (name.is(key)) found = value;
      scanner.space();
      scanner.take(',');
    }
    return found;
  }

  /// Calls a function with each item of an array, in order.
  template <class Visit>
  void forEach(Visit visit) const {
    if (!isArray()) return;
    detail::JsonScanner scanner(raw_);
    scanner.take('[');
    for (scanner.space(); !scanner.take(']'); scanner.space()) {
      visit(next(scanner, false));
      scanner.space();
      scanner.take(',');
    }
  }

  /// Tells whether it is this string.
  bool is(std::string_view text) const {
    if (!isString()) return false;
    const std::string_view inner = raw_.substr(1, raw_.size() - 2);
    return inner.find('\\') == std::string_view::npos ? inner == text : this->text() == text;
  }

  /// The text of a string, its escapes replaced; half of a surrogate pair is U+FFFD.
  std::string text() const {
    std::string out;
    if (!isString()) return out;
    out.reserve(raw_.size());
    for (std::size_t i = 1; i + 1 < raw_.size(); ++i) {
      if (raw_[i] != '\\')
        out.push_back(raw_[i]);
      else
        i = unescape(i + 1, out);
    }
    return out;
  }

  /// A number, unless it is none or beyond a double.
  std::optional<double> number() const {
    if (raw_.empty() || (raw_[0] != '-' && !detail::isDigit(raw_[0]))) return std::nullopt;
    double number = 0;
#ifdef __cpp_lib_to_chars
    const auto read = std::from_chars(raw_.data(), raw_.data() + raw_.size(), number);
    if (read.ec != std::errc()) return std::nullopt;
#else
    std::istringstream in{std::string(raw_)};
    in.imbue(std::locale::classic());
    if (!(in >> number)) return std::nullopt;
#endif
    return number;
  }

  /// A whole number from 0 to 2^64 - 1.
  std::optional<std::uint64_t> natural() const {
    std::uint64_t number = 0;
    const auto read = std::from_chars(raw_.data(), raw_.data() + raw_.size(), number);
    if (raw_.empty() || read.ec != std::errc() || read.ptr != raw_.data() + raw_.size())
      return std::nullopt;
    return number;
  }

 private:
  explicit Json(std::string_view raw) : raw_(raw) {}

  bool begins(char c) const { return !raw_.empty() && raw_[0] == c; }

  static Json next(detail::JsonScanner& scanner, bool is_key) {
    const char* begin = scanner.at();
    if (is_key)
      scanner.string();
    else
      scanner.value();
    return Json(std::string_view(begin, static_cast<std::size_t>(scanner.at() - begin)));
  }

  unsigned hex4(std::size_t i) const {
    unsigned code = 0;
    for (std::size_t n = 0; n < 4; ++n)
      code = code * 16 + static_cast<unsigned>(detail::hexValue(raw_[i + n]));
    return code;
  }

  /// Appends what an escape stands for; gives the place of its last character.
  std::size_t unescape(std::size_t i, std::string& out) const {
    static constexpr std::string_view letters = "bfnrt", meanings = "\b\f\n\r\t";
    if (raw_[i] != 'u') {
      const std::size_t letter = letters.find(raw_[i]);
      out.push_back(letter == std::string_view::npos ? raw_[i] : meanings[letter]);
      return i;
    }
    unsigned code = hex4(i + 1);
    i += 4;
    const bool is_high = code >> 10 == 0x36;
    if (is_high && raw_.substr(i + 1, 2) == "\\u" && hex4(i + 3) >> 10 == 0x37) {
      code = 0x10000 + ((code & 0x3FF) << 10) + (hex4(i + 3) & 0x3FF);
      i += 6;
    }
    detail::appendUtf8(out, code >> 11 == 0x1B ? 0xFFFD : code);
    return i;
  }

  std::string_view raw_;
};

namespace detail {

/// Appends a string with its quotes; whatever the text is, the result is one line.
inline void appendJsonString(std::string& out, std::string_view text) {
  static constexpr char hex[] = "0123456789abcdef";
  out.push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out.push_back(c < 0x10 ? '0' : '1');
      out.push_back(hex[c & 0xF]);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

/// Appends the shortest number that is read back as this float, in any locale.
inline void appendJsonNumber(std::string& out, float number) {
  if (number == 0) number = 0;  // there is no use for -0
#ifdef __cpp_lib_to_chars
  char buffer[32];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
#else
  for (int precision = 1; precision <= 9; ++precision) {
    std::ostringstream text;
    text.imbue(std::locale::classic());
    text.precision(precision);
    text << number;
    std::istringstream back(text.str());
    back.imbue(std::locale::classic());
    float same = 0;
    back >> same;
    if (same != number && precision < 9) continue;
    out += text.str();
    return;
  }
#endif
}

/// Appends valid JSON without white space between its parts, so on one line.
inline void appendCompact(std::string& out, const Json& json) {
  bool is_text = false;
  const std::string_view raw = json.raw();
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (!is_text && isSpace(raw[i])) continue;
    out.push_back(raw[i]);
    if (raw[i] == '"') is_text = !is_text;
    if (raw[i] == '\\') out.push_back(raw[++i]);
  }
}

}  // namespace detail
}  // namespace inferd

#endif
