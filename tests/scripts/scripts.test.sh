#!/usr/bin/env bash
# What the scripts do with what they are told, without building anything: cmake
# and the like are stand-ins that note how they are called. Where they are not,
# all is built already.
#
#   scripts.test.sh ROOT NAME
#
#   ROOT  the repository
#   NAME  a function below
# shellcheck disable=SC2016,SC2031
set -euo pipefail

root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# stand_in NAME [LINE...]: a program NAME in PATH that notes its arguments in
# NAME.log, and then does what the lines say.
stand_in() {
  local program=$work/bin/$1
  mkdir -p "$work/bin"
  {
    printf '#!/usr/bin/env bash\nprintf "%%s\\n" "$*" >>"%s"\n' "$work/$1.log"
    shift
    printf '%s\n' "$@"
  } >"$program"
  chmod +x "$program"
  PATH=$work/bin:$PATH
}

# A repository of the scripts alone in FOLDER.
clone() {
  mkdir -p "$1"
  cp -R "$root/scripts" "$1/scripts"
  printf '#!/bin/sh\n' >"$1/scripts/setup.sh"
}

# refused TEXT COMMAND...: the command fails and says TEXT.
refused() {
  local text=$1 said
  shift
  if said=$("$@" 2>&1); then
    echo "not refused: $*" >&2
    return 1
  fi
  [[ $said == *"$text"* ]] || {
    printf 'expected "%s", found:\n%s\n' "$text" "$said" >&2
    return 1
  }
}

same() {
  [[ $1 == "$2" ]] || {
    printf 'expected "%s", found "%s"\n' "$2" "$1" >&2
    return 1
  }
}

certificates_are_not_overwritten() {
  local name
  for name in server.key node.pem client.key ca.pem foreign.key; do
    mkdir certs
    echo precious >"certs/$name"
    refused "certs/$name" "$root/scripts/make-certs.sh" certs --bad
    same "$(ls -A certs)" "$name"
    same "$(<"certs/$name")" precious
    rm -r certs
  done
}

unfinished_certificates_leave_nothing() {
  stand_in openssl '[[ $1 != x509 ]] || exit 1' ': >"${@: -1}"'
  refused "" "$root/scripts/make-certs.sh" certs
  same "$(ls -A certs)" ""
}

certificates_are_of_one_run() {
  local mv made
  mv=$(type -P mv)
  stand_in openssl 'echo "${run:-first}" >"${@: -1}"'
  # When the first run is done with them, another one makes its own.
  stand_in mv "[[ -n \${run:-} ]] || run=second '$root/scripts/make-certs.sh' '$work/certs'" \
    "exec '$mv' \"\$@\""
  refused "certs/ca.key: there are certificates already" \
    "$root/scripts/make-certs.sh" certs
  same "$(sort -u certs/*)" second
  made=(certs/*)
  same "${#made[@]}" 8
  # One of another name is there all at once: what came before it goes again.
  rm -r certs
  stand_in mv "[[ \$2 != node.pem ]] || echo precious >'$work/certs/node.pem'" \
    "exec '$mv' \"\$@\""
  refused "certs/node.pem: there are" "$root/scripts/make-certs.sh" certs
  same "$(ls -A certs)" node.pem
  same "$(<certs/node.pem)" precious
}

certificates_are_made_here() {
  stand_in openssl ': >"${@: -1}"'
  refused "found 'a' and 'b'" "$root/scripts/make-certs.sh" a b
  [[ ! -e a && ! -e b ]]
  mkdir -p there/certs
  CDPATH=$work/there "$root/scripts/make-certs.sh" certs
  same "$(ls -A there/certs)" ""
  [[ -e certs/ca.pem ]]
}

formatting_is_checked_in_clones_of_git() {
  clone clone
  sed -i '/^check_format$/,$d' clone/scripts/test.sh
  echo check_format >>clone/scripts/test.sh
  clone/scripts/test.sh | grep 'the formatting is not checked'
}

numbers_of_small_batches_are_checked() {
  local script=$root/examples/trainer/small_batches.sh
  refused 'found "x"' "$script" . out resnet x
  refused 'found "0"' "$script" . out resnet 5 0
  [[ ! -e out ]]
}

further_arguments_are_refused() {
  clone clone
  refused "unknown argument '--nonsense'" clone/scripts/test.sh --quick --nonsense
  refused "unknown argument 'x'" "$root/scripts/setup.sh" --list x
  refused "summarize.py --markdown IN.json" "$root/scripts/summarize.py"
}

jobs_are_of_this_machine() (
  . "$root/scripts/lib.sh"
  unset OMP_NUM_THREADS OMP_THREAD_LIMIT
  memory_limits=()
  same "$(OMP_NUM_THREADS=1000 OMP_THREAD_LIMIT=1 usable_cores)" "$(nproc)"
  usable_cores() { echo 1000; }
  echo max >"$work/memory.max"
  memory_limits=("$work/none" "$work/memory.max")
  (($(jobs_for_memory) >= 1))
  echo 1 >"$work/limit_in_bytes"
  memory_limits+=("$work/limit_in_bytes")
  same "$(jobs_for_memory)" 1
)

lint_names_what_it_cannot_find() {
  command -v python3 >/dev/null || exit 77
  clone "torch/a clone"
  cd "torch/a clone"
  mkdir -p build/cpu
  local here=$PWD
  cat >build/cpu/compile_commands.json <<JSON
[{"file": "$here/actors/spin.cpp", "command": "c++ -I$here"},
 {"file": "$here/kernels/sums.cpp", "command": "c++ -I$here"},
 {"file": "$here/actors/nn/copy.cpp", "command": "c++ -I/usr/include/torch/x"}]
JSON
  stand_in cmake
  stand_in clang-tidy-14 '[[ -d ${@: -1} || ${@: -1} == *.cpp ]]'
  linted() { sed 's/.* -p build.cpu //' "$work/clang-tidy-14.log" | sort; }
  scripts/lint.sh
  same "$(linted | grep -c "$here/.*\.cpp$")" 2
  rm "$work/clang-tidy-14.log"
  scripts/lint.sh ./actors/spin.cpp
  same "$(linted | grep -c "$here/actors/spin.cpp$")" 1
  refused "actors/none.cpp" scripts/lint.sh actors/none.cpp actors/spin.cpp
  refused "actors/nn/copy.cpp" scripts/lint.sh actors/nn/copy.cpp
  echo '[]' >build/cpu/compile_commands.json
  refused "no file to lint" scripts/lint.sh
}

scripts_take_turns() {
  command -v python3 >/dev/null || exit 77
  clone clone
  # By itself it would get the lock.
  stand_in cmake "! flock --nonblock $work/clone/build/.lock true"
  stand_in cpack
  mkdir -p clone/build/package clone/build/cpu
  clone/scripts/package.sh
  echo '[]' >clone/build/cpu/compile_commands.json
  refused "no file to lint" clone/scripts/lint.sh
}

package_forgets_earlier_options() {
  clone clone
  stand_in cmake
  stand_in cpack
  mkdir -p clone/build/package
  clone/scripts/package.sh --help
  [[ ! -e cmake.log && ! -e cpack.log ]]
  clone/scripts/package.sh -DBUILD_SHARED_LIBS=ON
  same "$(grep -c -- '--fresh.*-DBUILD_SHARED_LIBS=ON$' cmake.log)" 1
}

setup_knows_a_package_of_two_architectures() {
  stand_in dpkg-query 'printf installedinstalled'
  stand_in apt-get 'exit 1'
  stand_in sudo 'exit 1'
  "$root/scripts/setup.sh" | grep 'nothing to do'
}

bench_checks_names_before_it_builds() {
  clone clone
  stand_in cmake
  refused "unknown benchmark 'kernel'" clone/scripts/bench.sh layer kernel
  refused "unknown benchmark 'kernels layer'" clone/scripts/bench.sh "kernels layer"
  refused "unknown option '--filter=x'" clone/scripts/bench.sh kernels --filter=x
  [[ ! -e cmake.log ]]
  # There is no program, for the stand-in builds none.
  refused "bench/kernels" clone/scripts/bench.sh kernels
  same "$(grep -c -- '--target bench_kernels --' cmake.log)" 1
  refused "no benchmark" clone/scripts/bench.sh
  same "$(grep -c -- '--target bench --' cmake.log)" 1
}

gpu_check_builds_where_one_stands() {
  clone clone
  mkdir -p empty there/empty
  CDPATH=$work/there refused "no .deb file in $work/empty" \
    clone/scripts/gpu-check.sh --no-gpu --build here/below --deps empty
  [[ -d here/below && ! -e clone/here ]]
}

minutes_of_tests_are_checked() {
  clone clone
  sed -i '/^check_format$/,$d' clone/scripts/test.sh
  local minutes
  for minutes in 40m abc -1; do
    SYNCNORM_TEST_MINUTES=$minutes refused "found \"$minutes\"" \
      clone/scripts/test.sh
  done
  echo 'stage some 0 echo done' >>clone/scripts/test.sh
  # All tests count as 10 minutes: 011, were it octal, would not be enough.
  for minutes in 0 011 098; do
    same "$(SYNCNORM_TEST_MINUTES=$minutes clone/scripts/test.sh)" "done"
  done
}

# nvcc_of VERSION FOLDER: an nvcc that says it is of that version.
nvcc_of() {
  mkdir -p "$2"
  printf '#!/bin/sh\necho "Cuda compilation tools, release %s, V%s.1"\n' \
    "$1" "$1" >"$2/nvcc"
  chmod +x "$2/nvcc"
}

cuda_code_is_compiled_by_a_recent_nvcc() {
  clone clone
  sed -i '/^"$root.scripts.setup.sh"$/,$d' clone/scripts/test.sh
  echo compile_cuda >>clone/scripts/test.sh
  stand_in cmake
  stand_in ctest
  nvcc_of 11.8 bin
  nvcc_of 12.4 later
  CUDACXX=$work/later/nvcc clone/scripts/test.sh
  same "$(grep -c -- "--preset cuda-compile -DCMAKE_CUDA_COMPILER=$work/later/nvcc$" \
    cmake.log)" 1
  same "$(grep -c -- '--target tests-gpu ' cmake.log)" 1
}

# CMake forgets all options where its cache names another nvcc.
another_nvcc_begins_afresh() {
  clone clone
  stand_in cmake
  nvcc_of 12.4 earlier
  nvcc_of 13.0 later
  mkdir -p clone/build/train-cuda
  echo "CMAKE_CUDA_COMPILER:FILEPATH=$work/earlier/nvcc" \
    >clone/build/train-cuda/CMakeCache.txt
  export TORCH_ROOT=$work/torch
  # There is no program, for the stand-in builds none.
  CUDACXX=$work/earlier/nvcc refused syncnorm-train clone/scripts/train.sh
  refused "" grep -- --fresh cmake.log
  CUDACXX=$work/later/nvcc refused syncnorm-train clone/scripts/train.sh
  same "$(grep -c -- "--fresh .*-DCMAKE_CUDA_COMPILER=$work/later/nvcc" cmake.log)" 1
}

gpu_check_leaves_no_results_of_an_earlier_run() {
  clone clone
  stand_in cmake 'echo cmake version 3.25.1; [[ $1 == --version ]]'
  stand_in ninja
  nvcc_of 12.4 bin
  mkdir -p b r
  touch r/result.txt r/bench.log r/cuda_kernels.json r/of_mine.txt
  echo "CMAKE_CUDA_COMPILER:STRING=/another/nvcc" >b/CMakeCache.txt
  CUDACXX=$work/bin/nvcc refused "CMake failed" clone/scripts/gpu-check.sh \
    --no-gpu --build b --results r
  same "$(echo $(ls r))" "configure.log of_mine.txt"
  same "$(grep -c -- "--fresh .*-DCMAKE_CUDA_COMPILER=$work/bin/nvcc " cmake.log)" 1
}

offline_deps_unpacks_what_it_downloads() {
  # Has each package of the script, and nothing that they need.
  stand_in apt-cache 'printf "%s\n" "${@:9}"'
  stand_in apt-get 'for package in "${@:2}"; do' \
    '  file=${package}_1%3a0.17.6_amd64.deb' \
    '  case $2:$package in' \
    '  *:--print-uris) ;;' \
    "  --print-uris:*) [[ -e \$file ]] || echo \"'http://x/\$file' \$file 1 SHA256:0\" ;;" \
    '  *) : >"$file" ;;' \
    '  esac' \
    'done'
  stand_in dpkg
  mkdir deps
  # One of an earlier run, which comes later in the alphabet.
  touch deps/libcaf-dev_1%3a0.17.7_amd64.deb deps/ninja-build_1%3a0.17.6_amd64.deb
  "$root/scripts/offline-deps.sh" --unpack deps | grep '^11 packages'
  same "$(grep -c 0.17.6 dpkg.log)" 11
  same "$(grep -c '^-x ./libcaf-dev_1%3a0.17.6_amd64.deb root$' dpkg.log)" 1
  refused "" grep 0.17.7 dpkg.log
  same "$(wc -l <deps/packages.txt)" 11
}

gpu_check_unpacks_what_was_collected() {
  clone clone
  stand_in dpkg 'mkdir -p "$3/usr/lib"'
  nvcc_of 12.4 bin
  mkdir deps
  touch deps/a_1.deb deps/a_2.deb
  local check=(clone/scripts/gpu-check.sh --no-gpu --build b --deps deps)
  stand_in cmake '[[ $1 == --version ]] && echo cmake version 3.25.1'
  stand_in ninja
  export CUDACXX=$work/bin/nvcc
  refused "CMake failed" "${check[@]}"
  same "$(grep -c '^-x .*/deps/a_[12].deb' dpkg.log)" 2
  rm dpkg.log
  echo a_2.deb >deps/packages.txt
  refused "CMake failed" "${check[@]}"
  same "$(cat dpkg.log)" "-x $work/deps/a_2.deb $work/b/deps"
  echo a_3.deb >>deps/packages.txt
  refused "a_3.deb of packages.txt is not in $work/deps" "${check[@]}"
}

gpu_check_links_with_the_shared_cxx_library() {
  clone clone
  nvcc_of 12.4 bin
  stand_in cmake '[[ $1 == --version ]] && echo cmake version 3.25.1' \
    'echo "LDFLAGS=$LDFLAGS" >>flags.log; false'
  stand_in ninja
  export CUDACXX=$work/bin/nvcc
  unset LDFLAGS CXX CUDAHOSTCXX
  refused "CMake failed" clone/scripts/gpu-check.sh --no-gpu --build "a b"
  same "$(tail -1 clone/flags.log)" "LDFLAGS="
  # Where the linker finds another one first.
  mkdir static
  cp "$(c++ -print-file-name=libstdc++.a)" static/
  local compiler
  compiler="exec $(command -v g++) \"\$@\" -L$work/static"
  stand_in own-c++ "$compiler"
  found_by_name() {
    refused "libstdc++.so.6, which the compiler does not find by itself" \
      "$@" clone/scripts/gpu-check.sh --no-gpu --build "a b"
    same "$(tail -1 clone/flags.log)" "LDFLAGS=-L$work/a\\ b/libstdc++ "
  }
  found_by_name env CXX=own-c++
  # By the compiler that links programs with CUDA in them.
  stand_in g++ "$compiler"
  found_by_name env
  # By one that does not know where its shared one is.
  stand_in own-c++ \
    '[[ $1 == -print-file-name=* ]] && echo "${1#*=}" && exit' "$compiler"
  found_by_name env CXX=own-c++
}

# README's command, as on a machine without a GPU that lacks no package.
train_trains_on_the_digits() {
  stand_in nvidia-smi
  stand_in dpkg-query 'echo installed'
  unset TORCH_ROOT
  refused 'expected 1 to 9999, found "0"' "$root/scripts/train.sh" --processes=0
  refused "no-such-option" "$root/scripts/train.sh" --no-such-option
  "$root/scripts/train.sh" --devices='cpu*2' --epochs=2 >one
  "$root/scripts/train.sh" --processes=2 --epochs=2 >two
  grep -E '^held-out accuracy [0-9.]+ % \([0-9]+ of 360\)$' one
  same "$(grep '^held-out' two)" "$(grep '^held-out' one)"
}

scripts_are_found_through_a_link() {
  local script
  for script in bench test gpu-check; do
    ln -s "$root/scripts/$script.sh" "$script"
    "./$script" --help | grep "scripts/$script.sh"
  done
}

"$2"
