#include "trainer/output/locked_file.hpp"

#include "trainer/output/atomic_file.hpp"
#include "trainer/output/named_lock.hpp"

#include "trainer/scratch_folder.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

using namespace syncnorm::train;

TEST_CASE("a lock does not take, and remove, a file that has something in it") {
  scratch_folder folder;
  auto path = folder / "m.csv.lock";
  auto lock = [&] { return message_of([&] { named_lock{path, "busy"}; }); };
  write_text(path, "of somebody else");
  CHECK(lock()
        == path.string()
               + ": expected an empty file, as a run that was killed leaves "
                 "it, or none, found 16 bytes");
  CHECK(read_text(path) == "of somebody else");
  write_text(path, "");
  CHECK(lock() == "nothing was thrown");
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a lock that cannot be made is an error that names it") {
  scratch_folder folder;
  auto path = folder / "none" / "m.csv.lock";
  CHECK(message_of([&] {
          named_lock{path, "busy"};
        })
        == path.string() + ": cannot be locked: No such file or directory");
}

TEST_CASE("a lock is no link and no pipe, and leaves them where they are") {
  scratch_folder folder;
  auto path = folder / "m.csv.lock";
  auto lock = [&] { return message_of([&] { named_lock{path, "busy"}; }); };
  std::filesystem::create_symlink("target", path);
  CHECK(lock() == path.string() + ": expected a file or none, found a link");
  CHECK(std::filesystem::is_symlink(path));
  CHECK_FALSE(std::filesystem::exists(folder / "target"));
  std::filesystem::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0666) == 0);
  CHECK(lock()
        == path.string() + ": expected a file or none, found something else");
  CHECK(std::filesystem::is_fifo(path));
}

TEST_CASE("a file is not written by way of a link or a pipe that has its "
          "temporary name") {
  scratch_folder folder;
  auto file = folder / "checkpoint";
  auto temporary = folder / "checkpoint.tmp";
  auto write = [&] {
    return message_of([&] { write_atomically(file, "new"); });
  };
  write_text(file, "old");
  write_text(folder / "target", "of somebody else");
  std::filesystem::create_symlink("target", temporary);
  CHECK(write()
        == temporary.string() + ": expected a file or none, found a link");
  CHECK(read_text(folder / "target") == "of somebody else");
  CHECK(std::filesystem::is_symlink(temporary));
  std::filesystem::remove(temporary);
  REQUIRE(::mkfifo(temporary.c_str(), 0666) == 0);
  CHECK(write()
        == temporary.string()
               + ": expected a file or none, found something "
                 "else");
  CHECK(std::filesystem::is_fifo(temporary));
  CHECK(read_text(file) == "old");
}
