#!/usr/bin/env bash
# Runs the Rust tests of the crates that hold `unsafe` code or threads under a sanitizer.
#
#   tools/sanitize.sh                      address, then thread
#   tools/sanitize.sh thread -p simile-kernels -- threads
#
# Needs a nightly toolchain on Linux (`rustup toolchain install nightly`). The standard library's memory accesses are not
# instrumented (that takes its sources), so a race report may be about synchronisation that the sanitizer cannot see:
# tools/sanitize.supp lists such places, each with its reason.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-both}" in
  both)
    "$0" address
    exec "$0" thread
    ;;
  address)
    flags='-Zsanitizer=address'
    crates=(-p simile-kernels -p simile-encoder -p simile-engine)
    ;;
  thread)
    flags='-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer'
    # Not the engine: every mutex that two of its threads want at once would be reported.
    crates=(-p simile-kernels -p simile-encoder)
    ;;
  *)
    echo "unknown sanitizer '$1': address, thread, or nothing for both" >&2
    exit 2
    ;;
esac
sanitizer=$1
shift
[ $# -gt 0 ] || set -- "${crates[@]}"

# The target is named so that build scripts and procedural macros are not instrumented.
target=$(rustc +nightly -vV | sed -n 's/^host: //p')
export RUSTFLAGS="$flags"
# Symbolising a backtrace in several threads is the standard library's business and reported.
export RUST_BACKTRACE=0
export ASAN_OPTIONS="detect_stack_use_after_return=1 ${ASAN_OPTIONS:-}"
export TSAN_OPTIONS="suppressions=$PWD/tools/sanitize.supp ${TSAN_OPTIONS:-}"
exec cargo +nightly test --target "$target" --target-dir "target/sanitize/$sanitizer" --tests --locked "$@"
