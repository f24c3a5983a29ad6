#!/bin/sh
# The data plane of the plan `side-cores`: side-cores.sh static|dynamic begins it, side-cores.sh down ends it.
# Guest N is at 198.18.0.(4N+2), the host on its tap one below, as `exitless experiment` tells the guests.
set -eu
here=$(dirname "$0")
guests="0 1 2 3 4 5"

down() {
    for unit in exitless-side-cores-monitor exitless-side-cores; do
        systemctl stop "$unit" 2>/dev/null || true
        systemctl reset-failed "$unit" 2>/dev/null || true
    done
    for guest in $guests; do
        ip link del "side$guest" 2>/dev/null || true
    done
}

case "${1:-}" in
down) down ;;
static | dynamic)
    down
    for guest in $guests; do
        ip tuntap add dev "side$guest" mode tap vnet_hdr
        ip addr add "198.18.0.$((4 * guest + 1))/30" dev "side$guest"
        ip link set "side$guest" up
    done
    systemd-run --quiet --unit=exitless-side-cores exitless iocm serve --config "$here/side-cores-$1.toml"
    left=100
    while [ ! -S /run/exitless-net-5.sock ] || ! exitless iocm get pid >/dev/null 2>&1; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || { echo "the I/O daemon does not begin: journalctl -u exitless-side-cores" >&2; exit 1; }
        sleep 0.1
    done
    if [ "$1" = dynamic ]; then
        systemd-run --quiet --unit=exitless-side-cores-monitor exitless iocm monitor --json
    fi
    ;;
*)
    echo "usage: $0 static|dynamic|down" >&2
    exit 2
    ;;
esac
