#!/usr/bin/env bash
# tools/gpu_bundle/check.sh BUNDLE: lets run-gpu run in an empty Debian root (debootstrap, minbase), without a driver: its programs
# must start, the report must be whole, and one line must say that there is no GPU. Root only.
set -euo pipefail

bundle=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/gpu-bundle.XXXXXX")
trap 'rm -rf "$work"' EXIT
say() { printf '%s\n' "gpu-bundle: $*" >&2; }

say "an empty root by debootstrap"
# From the machine's own package source.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Created-By: Packages' | head -1)
debootstrap --variant=minbase bookworm "$work/root" ${mirror:+"$mirror"} >"$work/debootstrap.log" 2>&1 || { tail -5 "$work/debootstrap.log" >&2; exit 1; }
cp -r "$bundle" "$work/root/bundle"
for library in libcaf_core libicuuc libfmt; do
  if find "$work/root/usr/lib" -name "$library*" | grep -q .; then say "the root is not empty: it has $library" && exit 1; fi
done
rc=0
chroot "$work/root" /usr/bin/env -i PATH=/usr/bin:/bin /bundle/run-gpu /report.txt >"$work/out" 2>&1 || rc=$?
report=$work/root/report.txt
fail() { say "$*"; cat "$report" "$work/out" >&2; exit 1; }
[ "$rc" -eq 3 ] || fail "exit status $rc, not 3"
[ "$(grep -c '^no GPU: .*cuda:0 cannot be used: this machine has no NVIDIA driver.*--device host:0$' "$report")" -eq 2 ] || fail "no line says why"
grep -q '^the host device: a model answers  *passed' "$report" || fail "the program did not run"
begun=$(grep '^== ' "$report" | grep -c -v '^== summary')
parts=$(sed -n '/^== summary/,$p' "$report" | grep -c -e ' passed ' -e ' not run: no GPU' -e ' left out: ')
[ "$begun" -gt 0 ] && [ "$parts" -eq "$begun" ] || fail "$begun parts were begun, and $parts have a verdict without a GPU"
! grep -q -e 'FAILED, ' -e 'did not end' "$report" || fail "a part failed"
# ICU without its data (icu_stub.c) still composes: an e and an acute are one letter's ids.
ids() {
  printf '%b' "$1" | chroot "$work/root" /bundle/lib/ld-linux-x86-64.so.2 --library-path /bundle/lib /bundle/bin/troupe \
    --model /bundle/tests/golden/tiny-qwen3 tokenize
}
[ -n "$(ids 'caf\0303\0251')" ] && [ "$(ids 'caf\0303\0251')" = "$(ids 'cafe\0314\0201')" ] || fail "text is not normalized"
sed -n '/^== summary/,$p' "$report" >&2
say "in an empty root: as it should be"
