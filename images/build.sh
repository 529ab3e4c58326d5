#!/usr/bin/env bash
# Fill a directory with the root file system of Cardwise's image: Debian packages, our wheel and what
# constraints.txt pins. Neither root nor a container engine is needed; packages are unpacked, and
# none of their scripts runs. Try the result with:
#
#   unshare --map-root-user --root=ROOT /usr/local/bin/cardwise-controller --help
#
# It takes a Debian 12 machine (apt-get, dpkg-deb) with Python 3.11 and pip. Packages come from where
# the machine's apt and pip get theirs, and are kept in the cache directory. Status 3: Debian's can't
# be had.
set -euo pipefail

usage="usage: images/build.sh ROOT   (a directory that is empty or not there yet)"
[[ $# -eq 1 ]] || { echo "$usage" >&2; exit 2; }
[[ ! -e $1 || -z $(ls -A "$1") ]] || { echo "build.sh: $1 is not empty; $usage" >&2; exit 2; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(dirname "$here")
mkdir -p "$1"
root=$(cd "$1" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cardwise/image
python=${PYTHON:-python3}
site=$root/usr/local/lib/python3.11/dist-packages
mkdir -p "$cache"/{lists,archives}/partial
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { echo "image: $*" >&2; }

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
  say "Python 3.11 is needed, as in the image; name it with PYTHON=python3.11"; exit 2; }

# --- Debian ------------------------------------------------------------------------------------------

apt() {
  (cd "$1" && shift && apt-get --quiet --quiet -o Dir::State::lists="$cache/lists" \
    -o Dir::Cache="$cache" -o APT::Sandbox::User="$(id -un)" "$@")
}

if [[ -z $(find "$cache/lists" -maxdepth 1 -name '*Packages*' -mmin -1440) ]]; then
  say "reading what Debian has"
  apt "$cache" update || say "Debian did not answer; going on with what is known from before"
fi
mapfile -t packages < <(grep -v '^#' "$here/packages.txt")
say "unpacking ${#packages[@]} Debian packages"
# A file that is there is not listed: names come from an empty directory. What is there and whole is
# not loaded again.
{ apt "$work" download --print-uris "${packages[@]}" | cut -d' ' -f2 >"$work/files"; } || true
[[ $(wc -l <"$work/files") -eq ${#packages[@]} ]] || {
  say "some of Debian's packages can't be had: ${packages[*]}"; exit 3; }
apt "$cache/archives" download "${packages[@]}" || { say "Debian's packages can't be had"; exit 3; }
while read -r file; do
  dpkg-deb --extract "$cache/archives/$file" "$root"
done <"$work/files"
# Licences stay.
find "$root/usr/share/doc" -type f ! -name copyright -delete
rm -rf "$root"/usr/share/{man,locale,lintian,bug,info} "$root"/usr/share/doc-base

# --- Cardwise ----------------------------------------------------------------------------------------

pip() { "$python" -m pip --quiet --disable-pip-version-check --no-input "$@"; }

say "building the wheel"
pip wheel --no-deps --wheel-dir "$work" "$source"
say "installing it with what constraints.txt pins"
pip install --only-binary=:all: --no-compile --root-user-action=ignore --target "$site" \
  --no-warn-conflicts --constraint "$source/constraints.txt" "$work"/cardwise-*.whl
rm -rf "${site:?}/bin"
# Where it was built from is nobody's business.
rm -f "$site"/*.dist-info/direct_url.json

mkdir -p "$root/usr/local/bin"
"$python" - "$site" "$root/usr/local/bin" <<'PYTHON'
import sys
from importlib.metadata import distributions
from pathlib import Path

site, programs = sys.argv[1:]
(ours,) = (found for found in distributions(path=[site]) if found.name == "cardwise")
for entry in ours.entry_points.select(group="console_scripts"):
    program = Path(programs, entry.name)
    program.write_text(
        # -I: neither the environment nor the directory one stands in says what is imported.
        "#!/usr/bin/python3.11 -I\n"
        f"import sys\n\nfrom {entry.module} import {entry.attr}\n\nsys.exit({entry.attr}())\n"
    )
    program.chmod(0o755)
PYTHON

# --- the rest ----------------------------------------------------------------------------------------

say "compiling Python's modules, for a root that nobody writes to"
find "$root" -name __pycache__ -prune -exec rm -rf {} +
"$python" -m compileall -q -j0 --invalidation-mode unchecked-hash -s "$root" -p / \
  "$root/usr/lib/python3.11" "$site" || { say "a module does not compile"; exit 1; }

cat >"$root/etc/passwd" <<'PASSWD'
root:x:0:0:root:/root:/usr/sbin/nologin
cardwise:x:65532:65532:cardwise:/nonexistent:/usr/sbin/nologin
PASSWD
printf 'root:x:0:\ncardwise:x:65532:\n' >"$root/etc/group"
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
mkdir -p "$root"/{dev,etc/cardwise,proc,run,sys,var/run}
install -d -m 1777 "$root/tmp"
chmod -R go+rX "$root"
say "done: $(du -sh "$root" | cut -f1) in $1"
