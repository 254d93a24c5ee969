#include "trainer/output/atomic_file.hpp"
#include "trainer/output/checkpoint_lock.hpp"
#include "trainer/output/growing_file.hpp"
#include "trainer/output/locked_file.hpp"

#include "trainer/scratch_folder.hpp"
#include "trainer/without_rights.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>

using namespace syncnorm::train;

namespace {

/// While it lives, no file grows beyond `bytes`: a full disk for one process.
class small_disk {
public:
  explicit small_disk(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }

  small_disk(const small_disk&) = delete;
  small_disk& operator=(const small_disk&) = delete;

  ~small_disk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

} // namespace

TEST_CASE("a file is replaced whole, or kept when the disk is full") {
  scratch_folder folder;
  auto file = folder / "checkpoint";
  write_atomically(file, "old");
  {
    small_disk limit{1000};
    auto message =
        message_of([&] { write_atomically(file, std::string(5000, 'x')); });
    CHECK(contains(message, "checkpoint: cannot be written: "));
  }
  CHECK(read_text(file) == "old");
  CHECK_FALSE(std::filesystem::exists(folder / "checkpoint.tmp"));
  write_atomically(file, "new");
  CHECK(read_text(file) == "new");
}

TEST_CASE("a file that is replaced keeps its permissions") {
  scratch_folder folder;
  auto file = folder / "checkpoint";
  auto rights_of = [](const std::filesystem::path& path) {
    return std::filesystem::status(path).permissions();
  };
  using enum std::filesystem::perms;
  for (auto rights :
       {owner_read | owner_write,
        owner_read | owner_write | group_read | group_write | others_read}) {
    write_atomically(file, "old");
    std::filesystem::permissions(file, rights);
    // Left by a process that was killed.
    write_text(folder / "checkpoint.tmp", "");
    write_atomically(file, "new");
    CHECK(rights_of(file) == rights);
    CHECK(read_text(file) == "new");
  }
}

TEST_CASE("of two who write a file at the same time each writes it whole") {
  scratch_folder folder;
  auto file = folder / "checkpoint";
  constexpr std::size_t size = std::size_t{1} << 20;
  write_atomically(file, std::string(size, 'z'));
  std::atomic<int> writing{2};
  auto write_often = [&](char content) {
    auto result = message_of([&] {
      for (int i = 0; i < 50; ++i)
        write_atomically(file, std::string(size, content));
    });
    --writing;
    return result;
  };
  auto one = std::async(std::launch::async, write_often, 'a');
  auto other = std::async(std::launch::async, write_often, 'b');
  std::size_t torn = 0;
  while (writing > 0) {
    auto text = read_text(file);
    torn += text != std::string(size, text.empty() ? ' ' : text[0]) ? 1 : 0;
  }
  CHECK(one.get() == "nothing was thrown");
  CHECK(other.get() == "nothing was thrown");
  CHECK(torn == 0);
  CHECK_FALSE(std::filesystem::exists(folder / "checkpoint.tmp"));
}

TEST_CASE("a file that another one does not stop writing is an error that "
          "names both, and stays as it was") {
  scratch_folder folder;
  auto file = folder / "checkpoint";
  write_atomically(file, "old");
  constexpr std::chrono::milliseconds none{0};
  locked_file other{folder / "checkpoint.tmp", none};
  REQUIRE(other.code() == 0);
  auto message = message_of([&] { write_atomically(file, "new", none); });
  CHECK(message
        == file.string() + ": cannot be written: another process writes "
               + file.string() + ".tmp");
  CHECK(read_text(file) == "old");
  CHECK(is_open_as(other.number(), folder / "checkpoint.tmp"));
}

TEST_CASE("what a killed process has left of a file is used again") {
  scratch_folder folder;
  write_text(folder / "checkpoint.tmp", "longer than what is written");
  write_atomically(folder / "checkpoint", "new");
  CHECK(read_text(folder / "checkpoint") == "new");
  CHECK_FALSE(std::filesystem::exists(folder / "checkpoint.tmp"));
}

TEST_CASE("one run at a time keeps a folder for its checkpoints, and leaves "
          "nothing there") {
  scratch_folder folder;
  auto refusal = [&] {
    return message_of([&] { checkpoint_lock{folder.path()}; });
  };
  // Left by a process that was killed.
  write_text(folder / "checkpoint.lock", "");
  {
    checkpoint_lock first{folder.path()};
    CHECK(refusal()
          == folder.path().string()
                 + ": another run writes its checkpoint here");
  }
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK(refusal() == "nothing was thrown");
  std::filesystem::create_directory(folder / "checkpoint.lock");
  CHECK(contains(refusal(), "checkpoint.lock: expected a file or none, found a "
                            "folder"));
}

TEST_CASE("the folders that were made for a lock go with it as far as they are "
          "empty") {
  scratch_folder folder;
  { checkpoint_lock nothing_saved{folder / "a/b/c/"}; }
  CHECK(std::filesystem::is_empty(folder.path()));
  {
    checkpoint_lock first{folder / "a/b/c"};
    write_text(folder / "a/file", "of somebody else");
  }
  CHECK(std::filesystem::exists(folder / "a/file"));
  CHECK_FALSE(std::filesystem::exists(folder / "a/b"));
  CHECK(contains(message_of([&] {
                   require_writable_folder(folder / "new/b"
                                           / std::string(300, 'x'));
                 }),
                 "cannot be made: File name too long"));
  CHECK_FALSE(std::filesystem::exists(folder / "new"));
}

TEST_CASE("a folder that may be written to and not read is refused before "
          "anything is changed: it could not be flushed") {
  scratch_folder folder;
  auto closed = folder / "closed";
  std::filesystem::create_directory(closed);
  write_text(closed / "file", "old");
  ::chmod(folder.path().c_str(), 0755);
  // For all others, if the test runs as root.
  ::chmod(closed.c_str(), 0333);
  if (message_without_rights([] {}) == no_other_user) {
    MESSAGE("skipped: this machine does not let root be somebody else");
    return;
  }
  CHECK(contains(
      message_without_rights([&] { require_writable_folder(closed); }),
      "closed: cannot be read, and so not flushed: Permission denied"));
  CHECK(contains(
      message_without_rights([&] { write_atomically(closed / "file", "new"); }),
      "file: cannot be written: Permission denied"));
  ::chmod(closed.c_str(), 0755);
  CHECK(read_text(closed / "file") == "old");
  CHECK_FALSE(std::filesystem::exists(closed / "file.tmp"));
}

TEST_CASE("what cannot be replaced by a file stays, with nothing beside it") {
  scratch_folder folder;
  std::filesystem::create_directory(folder / "checkpoint");
  auto message =
      message_of([&] { write_atomically(folder / "checkpoint", "x"); });
  CHECK(message
        == (folder / "checkpoint").string()
               + ": cannot be replaced: Is a directory");
  CHECK(std::filesystem::is_directory(folder / "checkpoint"));
  CHECK_FALSE(std::filesystem::exists(folder / "checkpoint.tmp"));
}

TEST_CASE("what cannot be read is an error that says why") {
  scratch_folder folder;
  CHECK(message_of([&] { (void) read_whole(folder.path()); })
        == folder.path().string() + ": cannot be read: Is a directory");
}

TEST_CASE("a folder that cannot be written to is refused by name") {
  scratch_folder folder;
  write_text(folder / "file", "");
  CHECK(contains(message_of([&] { require_writable_folder(folder / "file"); }),
                 "file: cannot be"));
  CHECK(contains(
      message_of([&] { write_atomically(folder / "none" / "file", "x"); }),
      "file: cannot be written: No such file"));
  CHECK(contains(message_of([] {
                   growing_file file{"/dev/full", false};
                   file.append("x");
                   file.flush();
                 }),
                 "/dev/full: cannot be written: No space left"));
  // More than is kept back until the flush.
  CHECK(contains(message_of([] {
                   growing_file file{"/dev/full", false};
                   file.append(std::string(std::size_t{1} << 20, 'x'));
                 }),
                 "/dev/full: cannot be written: No space left"));
}

TEST_CASE("a file that is deleted while it grows is an error: what is appended "
          "is lost") {
  scratch_folder folder;
  growing_file file{folder / "rows", false};
  file.append("x");
  file.flush();
  std::filesystem::remove(folder / "rows");
  CHECK(message_of([&] {
          file.append("y");
          file.flush();
        })
        == (folder / "rows").string() + ": was deleted");
}
