package main

import (
	"context"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// guarded is the HTTP API of a broker with users, on loopback.
func guarded(t *testing.T) (address string) { return guardedBy(t, t.TempDir()) }

// guardedBy is guarded with the secret for the first administrator in a directory.
func guardedBy(t *testing.T, dir string) (address string) {
	first, file, err := access.OpenFirst(dir)
	require.NoError(t, err)
	log := logrus.New()
	log.SetOutput(io.Discard)
	store, users := metadatatest.NewMemory(), access.NewRegistry(access.Options{Keys: metadata.Keys{Cluster: "c"}, First: first, FirstFile: file, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { users.Watch(ctx, store) })
	wait.Until(t, func() bool { return users.Policy() != nil }, "the users are read")
	cluster := edgetest.New()
	s := httptest.NewServer(httpapi.NSQD(httpapi.Options{}, httpapi.Backend{
		Publisher: cluster, Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Log: log,
		Users: users, Guard: guard.New(guard.Options{Users: users, Log: log}),
	}))
	t.Cleanup(func() {
		s.Close()
		cluster.Close()
		cancel()
		watch.Wait()
		_ = store.Close()
	})
	return strings.TrimPrefix(s.URL, "http://")
}

// ctl runs one command line.
func ctl(t *testing.T, address, line string) (string, error) {
	var out strings.Builder
	root := newRoot()
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append(strings.Fields(line), "--nsqd-http-address", address))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestTheFirstAdministrator: nsqctl reads the broker's secret where it can, and says what to do where it cannot.
func TestTheFirstAdministrator(t *testing.T) {
	dir := t.TempDir()
	at, file := guardedBy(t, dir), filepath.Join(dir, access.FirstFile)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("x.pem"), 0o600))
	_, err = ctl(t, at, "user create root --admin")
	require.ErrorContains(t, err, "which is in its file "+file)
	require.ErrorContains(t, err, "--token-file")
	require.NoError(t, os.Remove(file))
	_, err = ctl(t, at, "user create root --admin")
	require.ErrorContains(t, err, "no such file")
	elsewhere := filepath.Join(t.TempDir(), "copied")
	require.NoError(t, os.WriteFile(elsewhere, text, 0o600))
	token, err := ctl(t, at, "--token-file "+elsewhere+" user create root --admin")
	require.NoError(t, err)
	require.Contains(t, token, "root.")
}

// TestUsersAndRights is the way of an operator from an open cluster to a closed one.
func TestUsersAndRights(t *testing.T) {
	at, file := guarded(t), filepath.Join(t.TempDir(), "root.token")
	_, err := ctl(t, at, "user create root --admin --write-token "+file)
	require.NoError(t, err)
	st, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), st.Mode().Perm())

	_, err = ctl(t, at, "user list")
	require.ErrorContains(t, err, "--token-file, or $LOCKSTEP_TOKEN")
	_, err = ctl(t, at, "user create evil --admin --write-token "+filepath.Join(t.TempDir(), "evil"))
	require.ErrorContains(t, err, "UNAUTHORIZED")
	_, err = ctl(t, at, "--token-file "+file+" user rotate root --write-token "+file)
	require.ErrorIs(t, err, os.ErrExist, "a token that could not be written would be lost")

	token, err := ctl(t, at, "--token-file "+file+" user create shop")
	require.NoError(t, err)
	_, err = ctl(t, at, "--token-file "+file+" acl grant shop --topic shop.* --rights publish,administer")
	require.NoError(t, err)
	_, err = ctl(t, at, "--token-file "+file+" acl grant shop --topic shop.*")
	require.ErrorContains(t, err, "give --topic and --rights")
	_, err = ctl(t, at, "--token-file "+file+" acl grant shop --topic shop.* --rights read")
	require.ErrorContains(t, err, "publish,consume,administer")

	t.Setenv(brokerapi.TokenVariable, strings.TrimSpace(token))
	_, err = ctl(t, at, "topic delete invoices")
	require.ErrorContains(t, err, "nsqctl acl grant --help")
	_, err = ctl(t, at, "topic pause shop.orders")
	require.ErrorContains(t, err, "TOPIC_NOT_FOUND", "it may")

	t.Setenv(brokerapi.TokenVariable, "")
	out, err := ctl(t, at, "--token-file "+file+" acl list shop")
	require.NoError(t, err)
	require.Regexp(t, `shop +topics shop\.\* +publish,administer`, out)
	_, err = ctl(t, at, "--token-file "+file+" acl revoke shop --topic shop.* --rights administer")
	require.NoError(t, err)
	out, err = ctl(t, at, "--token-file "+file+" acl list -o json")
	require.NoError(t, err)
	require.Contains(t, out, `"rights": "publish"`)
	out, err = ctl(t, at, "--token-file "+file+" user list")
	require.NoError(t, err)
	require.Regexp(t, `root +token +administer`, out)
	_, err = ctl(t, at, "--token-file "+file+" user quota shop --topics 20 --channels 0 --put-rate 5000")
	require.NoError(t, err)
	_, err = ctl(t, at, "--token-file "+file+" user quota shop")
	require.ErrorContains(t, err, "name topics, partitions, channels")
	_, err = ctl(t, at, "--token-file "+file+" user quota nobody --topics 1")
	require.ErrorContains(t, err, "USER_NOT_FOUND")
	out, err = ctl(t, at, "--token-file "+file+" user list")
	require.NoError(t, err)
	require.Regexp(t, `shop +token +- +1 +3 of 20 topics, 8 of 10000 partitions, 5000 messages/s\n`, out)
	out, err = ctl(t, at, "--token-file "+file+" cluster limits")
	require.NoError(t, err)
	require.Regexp(t, `^OF +USED +LIMIT\ntopics +1 +20\npartitions +2 +-\nchannels of a topic +3 +4\n$`, out)
	_, err = ctl(t, at, "--token-file "+file+" user delete root")
	require.ErrorContains(t, err, "last one")
	out, err = ctl(t, at, "--token-file "+file+" audit")
	require.NoError(t, err)
	require.Contains(t, out, "POST /v1/user/create")
	require.NotContains(t, out, strings.TrimSpace(token))
}
