#!/bin/sh
# The life of the Debian package on a system whose first process is systemd:
#
#   SYSTEM="podman exec NAME" packaging/test-deb.sh OLD.deb NEW.deb
#
# $SYSTEM runs a command on that system, with the directory of the packages at /downloads
# and without Lockstep. The first failing line ends the test.
set -eu
old=$1 new=$2

step() { echo "== $*"; }
on() { $SYSTEM sh -euc "$1"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
# until_ok SCRIPT: waits up to 60 s until SCRIPT succeeds
until_ok() {
	end=$(($(date +%s) + 60))
	until on "$1" >/dev/null 2>&1; do
		[ "$(date +%s)" -lt $end ] || { on "systemctl status --no-pager nsqd; journalctl -n 40 --no-pager" || true; fail "$1"; }
		sleep 0.2
	done
}
property() { on "systemctl show -P $1 nsqd"; }
well='nsqctl health --ready'

step lintian
lintian --allow-root --fail-on warning,error "$old"

step install
on "DEBIAN_FRONTEND=noninteractive apt-get install -y /downloads/$(basename "$old")"
[ "$(on 'systemctl is-enabled nsqd || true')" = disabled ] || fail "a new broker must not start by itself"
[ "$(property ActiveState)" = inactive ] || fail "a new broker must not run"
[ "$(on 'stat -c %U:%G:%a /var/lib/lockstep')" = lockstep:lockstep:700 ] || fail "owner of the data"
on 'id lockstep'
[ "$(on 'stat -c %a /etc/default/nsqd')" = 640 ] || fail "secrets can be read by everybody"
on 'dpkg --verify lockstep'

step "the unit"
on 'systemd-analyze verify nsqd.service 2>&1' | grep -v 'man nsq' | grep nsqd && fail "systemd-analyze has remarks"
on 'systemd-analyze security --threshold=15 nsqd.service' | tail -1

step start
on 'systemctl enable --now nsqd'
until_ok "$well"
on 'curl -sSf -d one "http://127.0.0.1:4151/pub?topic=t"'
pid=$(property MainPID)
[ "$(on "stat -c %U /proc/$pid")" = lockstep ] || fail "the broker runs as another user"
on "grep -E '^NoNewPrivs:\s+1' /proc/$pid/status && grep -E '^Seccomp:\s+2' /proc/$pid/status && grep -E '^CapEff:\s+0+$' /proc/$pid/status"

step "systemd gives up after five tries with faults in the settings, and all are named"
on 'printf "partitions = 0\nrpc_tls_ca = \"/nowhere\"\n" >/etc/lockstep/nsqd.toml; ! systemctl restart nsqd'
on 'journalctl -u nsqd --no-pager' | grep -q 'partitions=0: must be at least 1' || fail "the first fault"
on 'journalctl -u nsqd --no-pager' | grep -q 'rpc-tls-ca go together' || fail "the second fault"
until_ok '[ "$(systemctl show -P ActiveState nsqd)" = failed ]'
[ "$(property NRestarts)" -le 5 ] || fail "tried $(property NRestarts) times again"
on 'printf "partitions = 2\n" >/etc/lockstep/nsqd.toml; systemctl reset-failed nsqd; systemctl start nsqd'
until_ok "$well"

step "a reload reads the log level"
on 'echo "log_level = \"debug\"" >>/etc/lockstep/nsqd.toml; systemctl reload nsqd'
until_ok 'journalctl -u nsqd --no-pager | grep "log level reloaded"'

step "the environment: a secret, a limit of memory"
on 'echo NSQD_CLUSTER_TOKEN=hunter2 >>/etc/default/nsqd; systemctl set-property nsqd MemoryMax=512M; systemctl restart nsqd'
until_ok "$well"
limits() { # whether systemd limits the unit's memory: its own group of control group v2, or of v1's memory
	on 'cat /proc/$(systemctl show nsqd -p MainPID --value)/cgroup' >/tmp/groups.$$
	if grep -q ':memory:' /tmp/groups.$$; then grep -q ':memory:.*nsqd.service' /tmp/groups.$$; else grep -q '^0::.*nsqd.service' /tmp/groups.$$; fi
}
if limits; then
	on 'journalctl -u nsqd --no-pager' | grep -q "memory limit set  from=container limit=460MiB" || fail "no memory limit"
else # cgroup v1, read-only in the container: systemd cannot limit the unit
	step "NOT TESTED HERE: the unit's limit of memory, which this machine's control groups do not allow"
fi
on 'tr "\0" "\n" </proc/$(systemctl show -P MainPID nsqd)/environ' | grep -q hunter2 || fail "the environment is not read"
on 'journalctl -u nsqd --no-pager' | grep -q hunter2 && fail "a secret is in the journal"

step "a broker that is killed is started again"
pid=$(property MainPID)
on "kill -KILL $pid"
until_ok "[ \$(systemctl show -P MainPID nsqd) != $pid ] && $well"

step "an upgrade keeps settings and data, and lets the broker run"
pid=$(property MainPID)
on "DEBIAN_FRONTEND=noninteractive apt-get install -y /downloads/$(basename "$new")" | grep 'restart the brokers one at a time'
[ "$(property MainPID)" = "$pid" ] || fail "the upgrade has restarted the broker"
on 'grep -q "partitions = 2" /etc/lockstep/nsqd.toml' || fail "the settings are gone"
[ "$(on 'systemctl is-enabled nsqd')" = enabled ] || fail "no longer enabled"
on 'systemctl restart nsqd'
until_ok "$well"
on 'nsqctl peek t' | grep -q one || fail "the message is gone"

step "a planned stop ends in order, and in time"
on 'systemctl stop nsqd'
[ "$(property Result)" = success ] || fail "it had to be killed: $(property Result)"
on 'journalctl -u nsqd --no-pager' | grep -q 'INFO: stopped' || fail "not stopped in order"
on 'systemctl start nsqd'
until_ok "$well"

step "remove and purge stop the broker, and leave the data"
on 'DEBIAN_FRONTEND=noninteractive apt-get remove -y lockstep'
on '! pgrep nsqd && ! test -e /usr/bin/nsqd && test -e /etc/lockstep/nsqd.toml && test -d /var/lib/lockstep/topics'
on 'DEBIAN_FRONTEND=noninteractive apt-get purge -y lockstep'
on '! test -e /etc/lockstep/nsqd.toml && ! test -e /etc/default/nsqd && test -d /var/lib/lockstep/topics'
[ -z "$(on 'find /etc/systemd/system -name "nsqd*" ! -path "*control*"')" ] || fail "links of the unit are left"

step "installed again, it serves the data"
on "DEBIAN_FRONTEND=noninteractive apt-get install -y /downloads/$(basename "$new") && systemctl enable --now nsqd"
until_ok "$well"
on 'nsqctl peek t' | grep -q one || fail "the message is gone"
step "all is well"
