#!/usr/bin/env bash
#
# Builds the control plane of the end-to-end tests from its Go modules into a cached folder, and prints that folder's
# path on the last line. `build.sh --path` prints the path alone and builds nothing.
#
# The folder's name is a hash of all that goes into the binaries (all modules, the Go version, the target, the flags),
# so a finished binary is never out of date and is never built twice. A binary is built under another name and then
# renamed: it is there as a whole or not at all, also when two builds run at once or one is interrupted.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${MIG_SCHEDULER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mig-scheduler}/controlplane

# Pure Go: no C compiler is needed, and the binaries run wherever the kernel does.
export CGO_ENABLED=0
flags=(-trimpath)
# Prometheus without the clients of all clouds: the tests name their targets.
prometheus_flags=(-tags remove_all_sd)

fail() {
    echo "build.sh: $*" >&2
    exit 1
}

# The same digest under the two names that systems know it by.
sha256() {
    if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -c1-16
}

needed=$(awk '$1 == "go" { print $2; exit }' "$here/go.mod")
command -v go >/dev/null || fail "Go $needed or newer is needed to build the control plane, and there is no 'go' in PATH"
# Asked inside the module: where toolchains may be fetched, Go answers with the one the module gets.
target=$(cd "$here" && go env GOVERSION GOOS GOARCH) || fail "Go $needed or newer is needed to build the control plane"
installed=$(head -n1 <<<"${target#go}")
[[ $(printf '%s\n' "$needed" "$installed" | sort -V | head -n1) == "$needed" ]] ||
    fail "Go $needed or newer is needed to build the control plane, found $installed"

out=$cache/$({ cat "$here"/go.{mod,sum} "$here"/{kwok,prometheus}/go.{mod,sum} && echo "$target" "${flags[@]}" "${prometheus_flags[@]}"; } | sha256)
if [[ ${1:-} == --path ]]; then
    echo "$out"
    exit
fi

mkdir -p "$out"
partial=
trap 'rm -f "$partial"' EXIT

# build NAME MODULE_DIR PACKAGE USUALLY [MORE_LDFLAGS]
#
# USUALLY is the time on two cores with an empty Go build cache, in the order below: the Kubernetes binaries share
# nearly all their packages, so the first of them pays for the others.
build() {
    local name=$1 dir=$2 package=$3 usually=$4 ldflags="-s -w ${5:-}" started=$SECONDS
    if [[ -x $out/$name ]]; then
        echo "$name: already built"
        return
    fi
    echo "$name: building (usually $usually on two cores) ..."
    partial=$out/.$name.$$
    (cd "$dir" && go build "${flags[@]}" -ldflags "$ldflags" -o "$partial" "$package") ||
        fail "$name did not build (a first build downloads its Go modules, so it needs the network)"
    mv "$partial" "$out/$name"
    echo "$name: built in $((SECONDS - started)) s"
}

# Kubernetes takes its version from the linker; unstamped, its API server serves a placeholder.
kubernetes=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' "$here/go.mod")
stamp="-X k8s.io/component-base/version.gitVersion=$kubernetes"

build etcd "$here" go.etcd.io/etcd/server/v3 "1 min"
build kube-apiserver "$here" k8s.io/kubernetes/cmd/kube-apiserver "4 min" "$stamp"
build kube-scheduler "$here" k8s.io/kubernetes/cmd/kube-scheduler "20 s" "$stamp"
build kube-controller-manager "$here" k8s.io/kubernetes/cmd/kube-controller-manager "20 s" "$stamp"
build kwok "$here/kwok" sigs.k8s.io/kwok/cmd/kwok "1 min"
flags+=("${prometheus_flags[@]}")
build prometheus "$here/prometheus" github.com/prometheus/prometheus/cmd/prometheus "4 min"
build promtool "$here/prometheus" github.com/prometheus/prometheus/cmd/promtool "10 s"

echo "$out"
