#!/usr/bin/env bash
# tools/caf_tsan.sh DIR: builds CAF's core, instrumented for ThreadSanitizer, as DIR/<version>/libcaf_core_tsan.a and
# prints that path. The sources are those of the Debian package that is installed, compiled against its headers, so that
# what our code includes is what the library was built from. Once per version: about 7 minutes of CPU.
#
# Debian's own libcaf_core.so is not instrumented: ThreadSanitizer cannot see its locks and reports races that are none,
# and suppressing those hides real races in the handlers of our actors.
set -euo pipefail

root=$1
version=$(dpkg-query -W -f '${source:Version}' libcaf-dev)
package=$(dpkg-query -W -f '${source:Package}' libcaf-dev)
dir=$root/$version
library=$dir/libcaf_core_tsan.a
if [ -s "$library" ]; then
  echo "$library"
  exit 0
fi
mkdir -p "$dir"
work=$(mktemp -d "$dir/build.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The machine's own package sources, asked for source packages. Its configuration stays as it is: lists and sources
# live in a directory of ours.
mkdir -p "$work/apt/parts" "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
for file in /etc/apt/sources.list.d/*.sources; do
  [ -e "$file" ] && sed 's/^Types:.*/Types: deb-src/' "$file" >"$work/apt/parts/$(basename "$file")"
done
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
  [ -e "$file" ] && sed -n 's/^deb /deb-src /p' "$file" >"$work/apt/parts/$(basename "$file")$([[ $file == *.list ]] || echo .list)"
done
apt_options=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/apt/parts" -o "Dir::State::lists=$work/apt/lists"
  -o "Dir::Cache=$work/apt/cache" -o APT::Sandbox::User=root)
echo "tsan: fetching the source of $package $version" >&2
apt-get "${apt_options[@]}" update >&2 || echo "tsan: some package sources have no source packages; going on" >&2
(cd "$work" && apt-get "${apt_options[@]}" source --download-only --tar-only "$package=$version" >&2)
mkdir "$work/src"
tar -xf "$work"/*.orig.tar.* -C "$work/src" --strip-components=1

mapfile -t sources < <(find "$work/src/libcaf_core/src" -name '*.cpp' | sort)
echo "tsan: compiling ${#sources[@]} files of CAF on $(nproc) cores" >&2
mkdir "$work/obj"
compile() {
  g++ -std=c++17 -O1 -g1 -fPIC -fno-omit-frame-pointer -fsanitize=thread -w -pthread -c "$1" -o "$2/obj/$(echo "${1#"$2"/src/}" | tr / _).o"
}
export -f compile
printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -I{} bash -c 'compile "$1" "$2"' _ {} "$work" &
pid=$!
while kill -0 "$pid" 2>/dev/null; do
  sleep 5
  printf 'tsan: %d of %d files\n' "$(find "$work/obj" -name '*.o' | wc -l)" "${#sources[@]}" >&2
done
wait "$pid"
ar rcs "$work/lib.a" "$work"/obj/*.o
mv "$work/lib.a" "$library"
echo "$library"
