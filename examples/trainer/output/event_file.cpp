#include "trainer/output/event_file.hpp"

#include "trainer/output/crc32c.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>

namespace syncnorm::train {

namespace {

template <class Integer>
void put_fixed(std::string& out, Integer x) {
  for (std::size_t i = 0; i < sizeof x; ++i)
    out += static_cast<char>(x >> (8 * i) & 0xff);
}

void put_varint(std::string& out, std::uint64_t x) {
  for (; x >= 0x80; x >>= 7)
    out += static_cast<char>((x & 0x7f) | 0x80);
  out += static_cast<char>(x);
}

// The wire types of protocol buffers.
enum wire : unsigned { varint = 0, fixed64 = 1, length = 2, fixed32 = 5 };

void put_key(std::string& out, unsigned field, wire type) {
  put_varint(out, field << 3 | type);
}

void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
  put_key(out, field, wire::length);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_double(std::string& out, unsigned field, double x) {
  put_key(out, field, wire::fixed64);
  put_fixed(out, std::bit_cast<std::uint64_t>(x));
}

std::uint32_t masked_crc(std::string_view bytes) {
  auto crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

double unix_time() {
  std::chrono::duration<double> time =
      std::chrono::system_clock::now().time_since_epoch();
  return time.count();
}

std::filesystem::path new_file(const std::filesystem::path& folder) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0')
    host = {'l', 'o', 'c', 'a', 'l', 'h', 'o', 's', 't'};
  return folder
         / fmt::format("events.out.tfevents.{}.{}.{}",
                       static_cast<std::int64_t>(unix_time()), host.data(),
                       getpid());
}

} // namespace

std::string tf_record(std::string_view data) {
  std::string result;
  put_fixed(result, std::uint64_t{data.size()});
  put_fixed(result, masked_crc(result));
  result += data;
  put_fixed(result, masked_crc(data));
  return result;
}

std::string scalar_event(double wall_time, std::int64_t step,
                         std::string_view tag, float value) {
  std::string scalar;
  put_bytes(scalar, 1, tag);
  put_key(scalar, 2, wire::fixed32);
  put_fixed(scalar, std::bit_cast<std::uint32_t>(value));
  std::string summary;
  put_bytes(summary, 1, scalar);
  std::string event;
  put_double(event, 1, wall_time);
  put_key(event, 2, wire::varint);
  put_varint(event, static_cast<std::uint64_t>(step));
  put_bytes(event, 5, summary);
  return event;
}

std::string version_event(double wall_time) {
  std::string event;
  put_double(event, 1, wall_time);
  put_bytes(event, 3, "brain.Event:2");
  return event;
}

std::string session_event(double wall_time, std::int64_t step) {
  std::string session;
  put_key(session, 1, wire::varint);
  put_varint(session, 1);
  std::string event;
  put_double(event, 1, wall_time);
  put_key(event, 2, wire::varint);
  put_varint(event, static_cast<std::uint64_t>(step));
  put_bytes(event, 7, session);
  return event;
}

event_file::event_file(const std::filesystem::path& folder,
                       std::optional<std::int64_t> resumed)
    : file_{new_file(folder), false} {
  file_.append(tf_record(version_event(unix_time())));
  if (resumed)
    file_.append(tf_record(session_event(unix_time(), *resumed)));
  file_.flush();
}

void event_file::add(std::int64_t step, std::string_view tag, double value) {
  file_.append(tf_record(
      scalar_event(unix_time(), step, tag, static_cast<float>(value))));
}

} // namespace syncnorm::train
