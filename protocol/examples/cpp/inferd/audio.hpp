// Recordings as the daemon takes them: floats of one channel, 16,000 a second.

#ifndef INFERD_AUDIO_HPP
#define INFERD_AUDIO_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace inferd {

/// Samples a second that models of speech take.
inline constexpr std::size_t kSampleRate = 16000;
/// Bytes of one recording: a day of 16-bit speech has 2.8 GB, an hour of 48 kHz stereo
/// 0.7 GB; more than this is a mistake rather than speech.
inline constexpr std::size_t kMaxAudioBytes = std::size_t{1} << 30;
/// Bytes of samples that one request may pass, the daemon's max_passed_bytes: 4.6 hours.
inline constexpr std::size_t kMaxSampleBytes = std::size_t{1} << 30;
/// Samples a second of a recording that is resampled; converters go up to 384,000.
inline constexpr std::uint32_t kMinRate = 1000, kMaxRate = 384000;
/// Channels that are averaged; surround has 8.
inline constexpr unsigned kMaxChannels = 32;

namespace detail {

/// Zero crossings of the low-pass filter on each side: 16 keep what would be folded back
/// below the noise of 12 bits, which no model of speech hears.
inline constexpr int kZeroCrossings = 16;
/// Steps of the filter's table from one zero crossing to the next; between them the
/// filter is a line, exact to 16 bits.
inline constexpr int kFilterSteps = 256;

/// Gives a recording's samples a slice at a time, so that none takes long.
class AudioReader {
 public:
  /// `format` is "wav" (whole numbers of 8, 16, 24 or 32 bits, floats of 32 or 64), or
  /// "f32": little-endian floats of one channel, 16,000 a second, without a header.
  AudioReader(std::vector<std::uint8_t> bytes, const std::string& format)
      : bytes_(std::move(bytes)) {
    if (bytes_.size() > kMaxAudioBytes)
      error_ = "audio_data is over " + std::to_string(kMaxAudioBytes) + " bytes";
    else if (format == "wav")
      error_ = readWavHeader();
    else if (format == "f32")
      n_frames_ = bytes_.size() / 4;
    else
      error_ = "audio format \"" + format + "\" is not supported: send \"wav\" or \"f32\"";
    if (error_.empty() && n_frames_ == 0) error_ = "audio_data has no samples";
    if (error_.empty() && nSamples() > kMaxSampleBytes / sizeof(float))
      error_ = "audio_data is longer than " + std::to_string(kMaxSampleBytes / 4 / kSampleRate) + " s";
    if (error_.empty() && rate_ != kSampleRate) makeFilter();
  }

  /// What is wrong with the recording; empty if it can be read.
  const std::string& error() const { return error_; }

  /// Appends up to `n` further samples to `out`; false once there are no more.
  bool read(std::size_t n, std::vector<float>& out) {
    n = static_cast<std::size_t>(std::min<std::uint64_t>(n, nSamples() - n_read_));
    if (rate_ == kSampleRate)
      for (std::size_t i = 0; i < n; ++i) out.push_back(frame(n_read_ + i));
    else
      resample(n, out);
    n_read_ += n;
    return n_read_ < nSamples();
  }

 private:
  std::uint64_t nSamples() const {
    return (std::uint64_t{n_frames_} * kSampleRate + rate_ - 1) / rate_;
  }

  std::uint32_t number(std::size_t at, unsigned n_bytes) const {
    std::uint32_t value = 0;
    for (unsigned i = 0; i < n_bytes; ++i) value |= std::uint32_t{bytes_[at + i]} << 8 * i;
    return value;
  }

  bool isNamed(std::size_t at, const char* name) const {
    return std::memcmp(bytes_.data() + at, name, 4) == 0;
  }

  std::string readWavHeader() {
    if (bytes_.size() < 12 || !isNamed(0, "RIFF") || !isNamed(8, "WAVE"))
      return "audio_data is not a WAV file";
    bool has_format = false;
    for (std::size_t at = 12; bytes_.size() - at >= 8;) {
      const std::size_t begin = at + 8;
      // A recorder that was cut off leaves a length of 0 or 2^32 - 1: then all is sound.
      const std::size_t told = number(at + 4, 4), left = bytes_.size() - begin;
      const std::size_t size = std::min(told, left);
      if (isNamed(at, "fmt ") && size >= 16) {
        const std::string wrong = readFormat(begin, size);
        if (!wrong.empty()) return wrong;
        has_format = true;
      } else if (isNamed(at, "data") && has_format) {
        data_ = begin;
        n_frames_ = (told == 0 ? left : size) / (n_channels_ * sample_bytes_);
        return "";
      }
      if (size + (size & 1) >= left) break;
      at = begin + size + (size & 1);
    }
    return "audio_data is a WAV file without samples";
  }

  std::string readFormat(std::size_t at, std::size_t size) {
    const std::uint32_t tag = number(at, 2);
    const bool is_extended = tag == 0xFFFE && size >= 26;
    const std::uint32_t kind = is_extended ? number(at + 24, 2) : tag;
    n_channels_ = number(at + 2, 2);
    rate_ = number(at + 4, 4);
    const unsigned bits = number(at + 14, 2);
    is_float_ = kind == 3;
    sample_bytes_ = bits / 8;
    const bool is_known = bits % 8 == 0 && (is_float_ ? bits == 32 || bits == 64
                                                      : kind == 1 && bits >= 8 && bits <= 32);
    if (!is_known || n_channels_ == 0 || n_channels_ > kMaxChannels || rate_ < kMinRate ||
        rate_ > kMaxRate)
      return "audio_data is a WAV file of a format that is not supported: " +
             std::to_string(kind) + ", " + std::to_string(bits) + " bits, " +
             std::to_string(n_channels_) + " channels, " + std::to_string(rate_) + " a second";
    return "";
  }

  float sample(std::size_t at) const {
    double value = 0;
    if (is_float_ && sample_bytes_ == 8) {
      std::memcpy(&value, bytes_.data() + at, 8);
    } else if (is_float_) {
      float narrow = 0;
      std::memcpy(&narrow, bytes_.data() + at, 4);
      value = narrow;
    } else if (sample_bytes_ == 1) {
      value = (bytes_[at] - 128) / 128.0;
    } else {
      const std::uint32_t left = number(at, sample_bytes_) << (32 - 8 * sample_bytes_);
      value = static_cast<std::int32_t>(left) / 2147483648.0;
    }
    return std::isfinite(value) ? static_cast<float>(value) : 0.0F;
  }

  float frame(std::size_t i) const {
    float sum = 0;
    for (unsigned channel = 0; channel < n_channels_; ++channel)
      sum += sample(data_ + (i * n_channels_ + channel) * sample_bytes_);
    return sum / static_cast<float>(n_channels_);
  }

  // A low-pass filter at the lower of both rates: sin(x)/x under a raised cosine.
  void makeFilter() {
    constexpr double pi = 3.14159265358979323846;
    cutoff_ = std::min(1.0, static_cast<double>(kSampleRate) / rate_);
    filter_.resize(kZeroCrossings * kFilterSteps + 2, 0.0F);
    for (int i = 0; i <= kZeroCrossings * kFilterSteps; ++i) {
      const double x = static_cast<double>(i) / kFilterSteps;
      const double sinc = i == 0 ? 1.0 : std::sin(pi * x) / (pi * x);
      const double window = 0.5 + 0.5 * std::cos(pi * x / kZeroCrossings);
      filter_[static_cast<std::size_t>(i)] = static_cast<float>(cutoff_ * sinc * window);
    }
  }

  void resample(std::size_t n, std::vector<float>& out) {
    if (n == 0) return;
    const double reach = kZeroCrossings / cutoff_;
    const auto place = [this](std::uint64_t i) {
      return static_cast<double>(i) * rate_ / static_cast<double>(kSampleRate);
    };
    const auto first = static_cast<std::size_t>(std::max(0.0, std::ceil(place(n_read_) - reach)));
    const auto last = std::min(n_frames_ - 1,
                               static_cast<std::size_t>(place(n_read_ + n - 1) + reach));
    std::vector<float> input(last - first + 1);
    for (std::size_t i = first; i <= last; ++i) input[i - first] = frame(i);
    for (std::uint64_t i = n_read_; i < n_read_ + n; ++i) {
      const double centre = place(i);
      auto from = static_cast<std::size_t>(std::max(0.0, std::ceil(centre - reach)));
      const auto to = std::min(last, static_cast<std::size_t>(centre + reach));
      float sum = 0;
      for (; from <= to; ++from) {
        const double at = std::fabs(static_cast<double>(from) - centre) * cutoff_ * kFilterSteps;
        const auto step = static_cast<std::size_t>(at);
        const auto rest = static_cast<float>(at - static_cast<double>(step));
        sum += input[from - first] * (filter_[step] + rest * (filter_[step + 1] - filter_[step]));
      }
      out.push_back(sum);
    }
  }

  std::vector<std::uint8_t> bytes_;
  std::string error_;
  std::size_t data_ = 0;
  std::size_t n_frames_ = 0;
  unsigned n_channels_ = 1;
  unsigned sample_bytes_ = 4;
  bool is_float_ = true;
  std::uint32_t rate_ = kSampleRate;
  std::uint64_t n_read_ = 0;
  double cutoff_ = 1;
  std::vector<float> filter_;
};

}  // namespace detail
}  // namespace inferd

#endif
