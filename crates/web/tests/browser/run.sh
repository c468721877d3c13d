#!/usr/bin/env bash
# Tests the page in a real browser. Installs Debian's Chromium if it is missing and installation is possible; otherwise the test is
# skipped with the reason (exit 0). Arguments are passed on: `run.sh --pictures /tmp/pictures`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../.." && pwd)

skip() {
  echo "browser: skipped: $1"
  exit 0
}

command -v python3 >/dev/null || skip "there is no python3"
if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
  command -v apt-get >/dev/null || skip "there is no chromium with chromedriver, and no apt-get to install them"
  [ "$(id -u)" = 0 ] || skip "there is no chromium with chromedriver, and only root may install them: apt-get install chromium chromium-driver"
  (apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium chromium-driver) >/dev/null 2>&1 ||
    skip "chromium could not be installed: apt-get install chromium chromium-driver fails here"
fi
binary=${MYXTTS:-$root/target/debug/myxtts}
[ -n "${MYXTTS:-}" ] || (cd "$root" && cargo build -q -p myxtts)
exec python3 "$here/drive.py" --myxtts "$binary" "$@"
