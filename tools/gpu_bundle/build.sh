#!/usr/bin/env bash
# tools/gpu_bundle/build.sh BIN DIR: makes DIR out of what Bazel has built into BIN: the programs, every shared library that they
# need, the loader and the C library too, the tiny models, and run-gpu. Nothing of the machine that it runs on is used but its
# kernel, a POSIX shell with the usual commands, and NVIDIA's driver. Prints the size; fails above 60 MiB.
set -euo pipefail

bin=$1
dir=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
if [ -e "$dir" ] && [ ! -f "$dir/run-gpu" ] && [ -n "$(ls -A "$dir")" ]; then
  echo "gpu-bundle: $dir is there and is no bundle: name another folder" >&2
  exit 1
fi
rm -rf "$dir"
mkdir -p "$dir/bin" "$dir/lib" "$dir/tests/golden/smollm2"

for program in tools/troupe/troupe tools/bench/gpu_bench tests/gpu/kernels_test tests/gpu/runtime_test; do
  strip -o "$dir/bin/$(basename "$program")" "$bin/$program"
done

# name => path; the loader is named by its path alone. NVIDIA's driver, loaded while the program runs, wants the three at the end,
# which have been empty since glibc 2.34.
loader=$(ldd "$dir/bin/troupe" | sed -n 's|^[[:space:]]*\(/[^ ]*ld-linux[^ ]*\).*|\1|p')
libraries=$(for program in "$dir"/bin/*; do ldd "$program"; done | sed -n 's|.* => \(/[^ ]*\) .*|\1|p' | sort -u)
libc=$(printf '%s\n' "$libraries" | grep '/libc\.so')
for library in $loader $libraries "$(dirname "$libc")"/lib{dl.so.2,rt.so.1,pthread.so.0}; do
  name=$(basename "$library")
  case $name in
    libicudata.so.*)
      gcc -shared -fPIC -O1 "-DDATA=icudt${name##*.}_dat" "-Wl,-soname,$name" -o "$dir/lib/$name" "$root/tools/gpu_bundle/icu_stub.c"
      strip "$dir/lib/$name"
      ;;
    *) cp -L "$library" "$dir/lib/$name" ;;
  esac
done
chmod 755 "$dir"/lib/*

for model in "$root"/tests/golden/tiny-*; do cp -rL "$model" "$dir/tests/golden/"; done
cp "$root/tests/golden/smollm2/golden.json" "$dir/tests/golden/smollm2/"
cp "$root/tools/gpu_bundle/run-gpu" "$dir/"
chmod 755 "$dir/run-gpu"
(cd "$root" && git describe --always --dirty 2>/dev/null || echo "no revision") >"$dir/revision"

bytes=$(du -sb --apparent-size "$dir" | cut -f1)
printf 'gpu-bundle: %s: %d.%d MiB\n' "$dir" $((bytes >> 20)) $(((bytes & 1048575) * 10 >> 20)) >&2
if [ "$bytes" -gt $((60 << 20)) ]; then
  echo "gpu-bundle: that is more than 60 MiB" >&2
  exit 1
fi
