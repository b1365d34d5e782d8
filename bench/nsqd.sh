#!/bin/sh
# Measures a new Lockstep cluster and a stock nsqd in turn and prints ratios.
# The nsqd is $NSQD, or is built into a temporary directory, from its own module with
# that module's versions. It has default settings and the flags of $NSQD_FLAGS.
# Arguments go to `nsqctl bench`. Called from the root of the repository.
set -eu
version=${NSQ_VERSION:-v1.3.0}
tcp=${NSQD_PORT:-17150} # HTTP: one more
dir=$(mktemp -d)
pid=
stop() {
	[ -z "$pid" ] || { kill "$pid"; wait "$pid" || true; }
	rm -rf "$dir"
}
trap stop EXIT
trap 'exit 1' INT TERM

if [ -z "${NSQD:-}" ]; then
	NSQD=$dir/nsqd
	source=$(cd "$dir" && go mod download -json "github.com/nsqio/nsq@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	go build -C "$source" -o "$NSQD" ./apps/nsqd
fi

mkdir "$dir/data"
# shellcheck disable=SC2086 # flags are words
"$NSQD" --data-path="$dir/data" --tcp-address="127.0.0.1:$tcp" --http-address="127.0.0.1:$((tcp + 1))" \
	--broadcast-address=127.0.0.1 ${NSQD_FLAGS:-} >"$dir/log" 2>&1 &
pid=$!
tries=100
until grep -q 'TCP: listening' "$dir/log"; do
	tries=$((tries - 1))
	if [ $tries = 0 ] || ! kill -0 "$pid" 2>/dev/null; then
		cat "$dir/log" >&2
		exit 1
	fi
	sleep 0.1
done
bin/nsqctl bench --cluster --compare "127.0.0.1:$tcp" --compare-name "$("$NSQD" --version | cut -d' ' -f1,2)" --compare-pids "$pid" "$@"
