package metadata

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

// Config has the endpoints of an etcd and the credentials for it.
type Config struct {
	Endpoints   []string           // host:port or URL of the members' client addresses
	TLS         func() *tls.Config // called for each connection; nil: plain text
	Username    string             // "" = no authentication
	Password    string             //
	DialTimeout time.Duration      // of one connection attempt, and of the login; 0 = 2 s
	Namespace   string             // put in front of every key; "" = none
}

const (
	defaultDialTimeout = 2 * time.Second
	// With gRPC's default back-off a broker would wait up to 120 s after its etcd came back.
	reconnectMin, reconnectMax = 20 * time.Millisecond, 500 * time.Millisecond
	// An external etcd ends connections that ping more often than every 5 s.
	pingEvery, pingTimeout = 6 * time.Second, 2 * time.Second
)

// Etcd is the Store on an etcd v3 cluster. A request waits until a member accepts it, so every caller sets a deadline.
type Etcd struct {
	client *clientv3.Client
	kv     clientv3.KV
	watch  clientv3.Watcher
	lease  clientv3.Lease
	group  *concurrency.Group // watches and keep-alives
	seen   atomic.Int64       // the newest revision that a watch has sent
}

var _ Store = (*Etcd)(nil)

// DialEtcd makes a client. It connects in the background, so etcd may start after the broker; only a login waits.
func DialEtcd(ctx context.Context, c Config) (*Etcd, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	timeout := c.DialTimeout
	if timeout <= 0 {
		timeout = defaultDialTimeout
	}
	options := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: reconnectMin, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectMax},
		MinConnectTimeout: timeout,
	})}
	var security *tls.Config
	if c.TLS != nil {
		security = c.TLS()
		if len(c.Endpoints) > 0 && !strings.HasPrefix(c.Endpoints[0], "http://") { // otherwise the client uses plain text
			options = append(options, grpc.WithTransportCredentials(renewed{credentials.NewTLS(security), c.TLS}))
		}
	}
	group := concurrency.NewGroup()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, TLS: security, Username: c.Username, Password: c.Password,
		DialTimeout: timeout, DialKeepAliveTime: pingEvery, DialKeepAliveTimeout: pingTimeout,
		Context: group.Context(), Logger: zap.NewNop(),
		DialOptions: options,
	})
	if err != nil {
		group.Close()
		return nil, fmt.Errorf("metadata: connect to etcd %v: %w", c.Endpoints, err)
	}
	e := &Etcd{client: client, kv: client.KV, watch: client.Watcher, lease: client.Lease, group: group}
	if c.Namespace != "" {
		e.kv = namespace.NewKV(client.KV, c.Namespace)
		e.watch = namespace.NewWatcher(client.Watcher, c.Namespace)
		e.lease = namespace.NewLease(client.Lease, c.Namespace)
	}
	return e, nil
}

// Get implements Store.
func (e *Etcd) Get(ctx context.Context, key string) (Entry, error) {
	seen := e.seen.Load()
	r, err := e.kv.Get(ctx, key)
	if err == nil {
		err = wentBack(seen, r.Header)
	}
	if err != nil {
		return Entry{}, readError(err)
	}
	if len(r.Kvs) == 0 {
		return Entry{}, ErrNotFound
	}
	return entryOf(r.Kvs[0]), nil
}

// GetAll implements Store.
func (e *Etcd) GetAll(ctx context.Context, keys []string) ([]Entry, error) {
	gets := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		gets[i] = clientv3.OpGet(key)
	}
	r, err := e.kv.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return nil, readError(err)
	}
	var out []Entry
	for _, got := range r.Responses {
		for _, kv := range got.GetResponseRange().Kvs {
			out = append(out, entryOf(kv))
		}
	}
	return out, nil
}

// List implements Store. It reads pages at the revision of the first: with a hundred thousand partitions a single
// answer would have 36 MB and exceed the request timeout.
func (e *Etcd) List(ctx context.Context, prefix string) ([]Entry, int64, error) {
	var out []Entry
	from, end, rev := prefix, clientv3.GetPrefixRangeEnd(prefix), int64(0)
	for {
		r, err := e.page(ctx, from, end, rev)
		if err != nil {
			return nil, 0, err
		}
		for _, kv := range r.Kvs {
			out = append(out, entryOf(kv))
		}
		rev = cmp.Or(rev, r.Header.Revision)
		if !r.More {
			return out, rev, nil
		}
		from = out[len(out)-1].Key + "\x00"
	}
}

// page reads the first keys of a range at a revision; 0: the current one.
func (e *Etcd) page(ctx context.Context, from, end string, rev int64) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	r, err := e.kv.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(rev), clientv3.WithLimit(pageKeys))
	if err != nil {
		return nil, readError(err)
	}
	return r, nil
}

// Txn implements Store.
func (e *Etcd) Txn(ctx context.Context, cmp []Compare, puts []Put) (ok bool, rev int64, err error) {
	if ctx.Err() != nil || e.group.Context().Err() != nil {
		return false, 0, ErrUnavailable // nothing was sent
	}
	r, err := e.kv.Txn(ctx).If(conditions(cmp)...).Then(operations(puts)...).Commit()
	if err != nil {
		return false, 0, writeError(err)
	}
	return r.Succeeded, r.Header.Revision, nil
}

// saw notes a revision that a watch has sent.
func (e *Etcd) saw(revision int64) {
	for seen := e.seen.Load(); revision > seen && !e.seen.CompareAndSwap(seen, revision); seen = e.seen.Load() {
	}
}

// wentBack compares the revision of a linearizable read with the newest revision that a watch had sent when the read
// began.
func wentBack(seen int64, h *etcdserverpb.ResponseHeader) error {
	if h.Revision >= seen {
		return nil
	}
	return fmt.Errorf("%w: revision %d after %d", ErrWentBack, h.Revision, seen)
}

// Revoke implements Store.
func (e *Etcd) Revoke(ctx context.Context, id int64) error {
	_, err := e.lease.Revoke(ctx, clientv3.LeaseID(id))
	if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return writeError(err)
}

// Close implements Store.
func (e *Etcd) Close() error {
	if !e.group.Close() {
		return nil
	}
	e.group.Wait()
	if err := e.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("metadata: close: %w", err)
	}
	return nil
}

func entryOf(kv *mvccpb.KeyValue) Entry {
	return Entry{
		Key: string(kv.Key), Value: kv.Value,
		Create: kv.CreateRevision, Mod: kv.ModRevision, Lease: kv.Lease,
	}
}

func conditions(cmp []Compare) []clientv3.Cmp {
	out := make([]clientv3.Cmp, 0, len(cmp))
	for _, c := range cmp {
		if c.Create != -1 {
			out = append(out, clientv3.Compare(clientv3.CreateRevision(c.Key), "=", c.Create))
		}
		if c.Mod != -1 {
			out = append(out, clientv3.Compare(clientv3.ModRevision(c.Key), "=", c.Mod))
		}
	}
	return out
}

func operations(puts []Put) []clientv3.Op {
	out := make([]clientv3.Op, len(puts))
	for i, p := range puts {
		switch {
		case p.Delete:
			out[i] = clientv3.OpDelete(p.Key)
		case p.Lease != 0:
			out[i] = clientv3.OpPut(p.Key, string(p.Value), clientv3.WithLease(clientv3.LeaseID(p.Lease)))
		default:
			out[i] = clientv3.OpPut(p.Key, string(p.Value))
		}
	}
	return out
}

// readError maps the failure of a request that changes nothing.
func readError(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }

// writeError maps the failure of a request that changes something. It is ErrUnknown without proof that the request was refused
// before it was proposed: after a timeout, a lost connection or a change of etcd's leader, a proposal may be applied later.
func writeError(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("%w: %w", ErrNoLease, err)
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrDuplicateKey),
		errors.Is(err, rpctypes.ErrEmptyKey), errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case errors.Is(err, rpctypes.ErrNoSpace), errors.Is(err, rpctypes.ErrTooManyRequests):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	switch codeOf(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// codeOf finds the gRPC code in both kinds of the client's errors.
func codeOf(err error) codes.Code {
	if typed, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return typed.Code()
	}
	return status.Code(err)
}

// explainTimeout bounds the check of one endpoint.
const explainTimeout = time.Second

// Explain returns the reasons why the endpoints cannot be reached, nil if at least one can. The error of the client itself is
// only that its time ran out.
func (c Config) Explain(ctx context.Context) error {
	var reasons []error
	var security *tls.Config
	if c.TLS != nil {
		security = c.TLS()
	}
	for _, endpoint := range c.Endpoints {
		err := reach(ctx, endpoint, security)
		if err == nil {
			return nil
		}
		reasons = append(reasons, fmt.Errorf("%s: %w", endpoint, err))
	}
	return errors.Join(reasons...)
}

// reach connects and waits for the server's first byte or a timeout: a server refuses a broker's certificate after the
// handshake.
func reach(ctx context.Context, endpoint string, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	scheme, address, named := strings.Cut(endpoint, "://")
	if !named {
		scheme, address = "http", endpoint
	}
	dial := new(net.Dialer).DialContext
	if scheme == "https" {
		dial = (&tls.Dialer{Config: config}).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// renewed are gRPC credentials of a client whose certificate and authority change at run time: each connection uses the
// current configuration. The embedded credentials have the initial configuration.
type renewed struct {
	credentials.TransportCredentials
	config func() *tls.Config
}

func (r renewed) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.config()).ClientHandshake(ctx, authority, conn)
}

func (r renewed) Clone() credentials.TransportCredentials { return r }
