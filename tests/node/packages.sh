#!/usr/bin/env bash
# Unpack what a node needs of Debian into the cache directory, and print where: runc with the library
# it links to, and a static busybox; or as `packages.sh containerd` the containerd of Debian 12, which
# knows no CDI. Nothing is installed on the machine. Status 3: can't be had.
set -euo pipefail

cache="${XDG_CACHE_HOME:-$HOME/.cache}/cardwise/node"
case "${1:-}" in
  '') name=debian packages=(runc libseccomp2 busybox-static) ;;
  containerd) name=debian-containerd packages=(containerd) ;;
  *) printf 'node: no such packages: %s\n' "$1" >&2; exit 2 ;;
esac
home="$cache/$name"

say() { printf 'node: %s\n' "$*" >&2; }

mkdir -p "$cache"
exec 9>"$cache/$name.lock"
flock 9
if [[ ! -d $home ]]; then
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
    say "apt-get and dpkg-deb are needed for ${packages[*]}"; exit 3; }
  work="$cache/$name.partial"
  rm -rf "$work"
  mkdir -p "$work"/{lists,archives}/partial "$work/root"
  apt() {
    apt-get --quiet --quiet -o Dir::State::lists="$work/lists" -o Dir::Cache="$work" \
      -o APT::Sandbox::User="$(id -un)" "$@" >&2
  }
  say "unpacking ${packages[*]} of Debian"
  apt update || { say "Debian's packages can't be had"; exit 3; }
  (cd "$work/archives" && apt download "${packages[@]}") || {
    say "Debian's packages can't be had: ${packages[*]}"; exit 3; }
  for file in "$work"/archives/*.deb; do dpkg-deb --extract "$file" "$work/root"; done
  mv "$work/root" "$home" # atomic: a directory of that name is whole
  rm -rf "$work"
fi
printf '%s\n' "$home"
