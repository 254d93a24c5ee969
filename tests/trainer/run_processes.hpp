#pragma once

#include "trainer/output/metrics_file.hpp"

#include "trainer/child_process.hpp"
#include "trainer/scratch_folder.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

// Runs of the program in several processes on this machine.

namespace syncnorm::train {

using arguments = std::vector<std::string>;
using child = std::unique_ptr<child_process>;

inline arguments operator+(arguments a, const arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline child start(const arguments& options) {
  return std::make_unique<child_process>(arguments{SYNCNORM_TRAIN} + options);
}

/// A process that serves a run, and its address.
struct server {
  child process;
  std::string where;
};

/// Options of a small run that ends soon.
inline const arguments small{"--model=mlp", "--deadline=5", "--patience=20"};

inline server serve(const arguments& options, std::size_t workers) {
  server result;
  result.process = start(
      arguments{"--serve=127.0.0.1:0", "--workers=" + std::to_string(workers)}
      + options);
  const std::string mark = "serving at ";
  auto line = result.process->line_that_begins(mark);
  REQUIRE(line.starts_with(mark));
  auto end = line.find(": waiting");
  result.where = line.substr(mark.size(), end - mark.size());
  return result;
}

inline child join(const std::string& where, const arguments& options) {
  return start(arguments{"--join=" + where} + options);
}

/// Waits for the process to end with an error that contains `text`.
inline void require_failure(child_process& process, const std::string& text) {
  auto status = process.finish();
  INFO(process.output());
  REQUIRE(status == 1);
  REQUIRE(contains(process.output(), text));
}

inline void require_good_end(child_process& process) {
  auto status = process.finish();
  INFO(process.output());
  REQUIRE(status == 0);
}

/// What a run leaves: the losses of its steps, and its checkpoint.
struct trace {
  std::vector<double> losses;
  std::string checkpoint;
  /// The output of the serving process.
  std::string said{};
};

inline trace read_trace(const scratch_folder& folder) {
  trace result;
  for (const auto& row : read_metrics(folder / "m.csv"))
    if (!row.is_epoch())
      result.losses.push_back(row.loss);
  result.checkpoint = read_text(folder / "checkpoint.pt");
  return result;
}

inline arguments traced(const scratch_folder& folder) {
  return {"--metrics=" + (folder / "m.csv").string(),
          "--checkpoint=" + folder.path().string()};
}

/// A run in `processes` processes with `devices` each.
inline trace run(std::size_t processes, const std::string& devices,
                 const arguments& options) {
  scratch_folder folder;
  auto own = options + arguments{"--devices=" + devices};
  if (processes == 1) {
    require_good_end(*start(own + traced(folder)));
    return read_trace(folder);
  }
  auto first = serve(own + traced(folder), processes - 1);
  std::vector<child> others;
  for (std::size_t i = 1; i < processes; ++i)
    others.push_back(join(first.where, own));
  require_good_end(*first.process);
  for (auto& other : others)
    require_good_end(*other);
  auto result = read_trace(folder);
  result.said = first.process->output();
  return result;
}

/// Whether both are the same, bit for bit.
inline bool is_same(const trace& a, const trace& b) {
  return a.losses == b.losses && a.checkpoint == b.checkpoint;
}

/// A run of one server and two workers that have done some steps.
struct running_trio {
  server first;
  child stays;
  child goes;
  /// The name of the process `goes`.
  std::string name;

  explicit running_trio(const arguments& options)
      : first{serve(options + arguments{"--devices=cpu"}, 2)},
        stays{join(first.where, options + arguments{"--devices=cpu"})},
        goes{join(first.where, options + arguments{"--devices=cpu*2"})},
        name{fmt::format(":{}, 2 replicas) ", goes->id())} {
    REQUIRE(first.process->wait_for("epoch"));
  }
};

/// Options of a run that lasts until it is ended.
inline const arguments endless =
    arguments{"--model=mlp", "--deadline=2", "--patience=20", "--epochs=9999"};

} // namespace syncnorm::train
