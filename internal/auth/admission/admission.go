// Package admission stores the invitations of brokers that may join a running cluster with embedded etcd, in the cluster's
// metadata.
//
// An invitation is the name of a broker and an expiry time. It has no secret: the broker proves its name with a certificate of
// the cluster's authority, at ports that check it (rpc/peertls). Neither an invitation nor a certificate is enough without the
// other. A broker that has joined removes its invitation. It is a member then, and could write any invitation itself.
//
// Invariants:
//
//  1. Before the first answer of the metadata no broker is invited.
//  2. An invitation that has expired, or cannot be read, invites nobody, even if its key still exists.
//  3. A broker that joined and was removed again is not invited.
//
// The package starts no goroutine: the caller runs Registry.Watch.
package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// maxTime bounds an invitation: a forgotten invitation must expire.
	maxTime = 7 * 24 * time.Hour
	// maxInvited bounds the invitations of a cluster, so that a transaction can remove all of them.
	maxInvited = 100
	// maxName is the length of a DNS name.
	maxName = 253
)

var (
	// ErrInvalid means that a request is invalid; the text says why.
	ErrInvalid = errors.New("admission: invalid")
	// errNotReady means that the metadata has not answered yet.
	errNotReady = errors.New("admission: the metadata has not answered yet")
	// ErrUnknown means that the metadata did not answer in time: the change may have been made, or may still be made.
	ErrUnknown = errors.New("admission: the metadata did not answer in time: the change may have been made, and is safe to repeat")
)

// Options of a Registry.
type Options struct {
	Keys metadata.Keys
	// NotNeeded says why no broker needs an invitation; "" = brokers need one.
	NotNeeded string
	Log       logrus.FieldLogger
}

// Registry follows the invitations, and changes them. Its methods may be called by any goroutine.
type Registry struct {
	o  Options
	mu struct {
		sync.Mutex
		store metadata.Store       // nil until Watch
		until map[string]time.Time // by name, as read by the watch
	}
}

// record is the value of an invitation's key (version 1).
type record struct {
	V       int   `json:"v"`
	UntilMS int64 `json:"until_ms"` // Unix time
}

// New makes a registry without invitations.
func New(o Options) *Registry {
	r := &Registry{o: o}
	r.mu.until = map[string]time.Time{}
	return r
}

// Watch follows the invitations in the metadata until ctx ends. It is called once.
func (r *Registry) Watch(ctx context.Context, store metadata.Store) {
	r.mu.Lock()
	r.mu.store = store
	r.mu.Unlock()
	for change := range store.Watch(ctx, r.o.Keys.Invitations()) {
		r.apply(change)
	}
}

func (r *Registry) apply(c metadata.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Reset {
		clear(r.mu.until)
	}
	for _, e := range c.Puts {
		name, ok := r.o.Keys.ParseInvitation(e.Key)
		if !ok {
			continue
		}
		delete(r.mu.until, name)
		var read record
		if err := json.Unmarshal(e.Value, &read); err != nil {
			r.o.Log.WithError(err).WithField("node", name).Error("cannot read an invitation, it admits no broker")
			continue
		}
		r.mu.until[name] = time.UnixMilli(read.UntilMS)
	}
	for _, key := range c.Deletes {
		if name, ok := r.o.Keys.ParseInvitation(key); ok {
			delete(r.mu.until, name)
		}
	}
}

// Invited returns the names of the brokers that may join now.
func (r *Registry) Invited() []string { return slices.Collect(maps.Keys(r.Open())) }

// Open returns the valid invitations: the name of the broker, and the expiry time.
func (r *Registry) Open() map[string]time.Time {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	open := maps.Clone(r.mu.until)
	maps.DeleteFunc(open, func(_ string, until time.Time) bool { return !now.Before(until) })
	return open
}

// Invite lets a broker of this name join for a time. A second invitation of the name replaces the first.
func (r *Registry) Invite(ctx context.Context, node string, length time.Duration) (until time.Time, err error) {
	switch {
	case r.o.NotNeeded != "":
		return until, fmt.Errorf("%w: %s", ErrInvalid, r.o.NotNeeded)
	case length <= 0 || length > maxTime:
		return until, fmt.Errorf("%w: an invitation must last for more than 0 and at most %v, not %v", ErrInvalid, maxTime, length)
	}
	store, expired, others, err := r.others(node)
	if err != nil {
		return until, err
	}
	if others >= maxInvited {
		return until, fmt.Errorf("%w: %d brokers are invited, the maximum", ErrInvalid, others)
	}
	until = time.Now().Add(length).Truncate(time.Millisecond)
	value, err := json.Marshal(record{V: 1, UntilMS: until.UnixMilli()})
	if err != nil {
		return until, err
	}
	puts := []metadata.Put{{Key: r.o.Keys.Invitation(node), Value: value}}
	for _, name := range expired[:min(len(expired), maxInvited)] {
		puts = append(puts, metadata.Put{Key: r.o.Keys.Invitation(name), Delete: true})
	}
	return until, write(ctx, store, puts)
}

// others returns, of the invitations of other brokers, the names of the expired ones and the number of the valid ones.
func (r *Registry) others(node string) (store metadata.Store, expired []string, valid int, err error) {
	if !validName(node) {
		return nil, nil, 0, fmt.Errorf("%w: %q is not the --node-name of a broker", ErrInvalid, node)
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.store == nil {
		return nil, nil, 0, errNotReady
	}
	for name, until := range r.mu.until {
		switch {
		case name == node:
		case now.Before(until):
			valid++
		default:
			expired = append(expired, name)
		}
	}
	return r.mu.store, expired, valid, nil
}

// Withdraw removes an invitation, if it exists.
func (r *Registry) Withdraw(ctx context.Context, node string) error {
	store, _, _, err := r.others(node)
	if err != nil {
		return err
	}
	return write(ctx, store, []metadata.Put{{Key: r.o.Keys.Invitation(node), Delete: true}})
}

// Joined removes the invitation of this broker, which has become a member.
func Joined(ctx context.Context, store metadata.Store, keys metadata.Keys, self ident.Node) error {
	key := keys.Invitation(string(self))
	_, err := store.Get(ctx, key)
	if errors.Is(err, metadata.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("admission: read this broker's invitation: %w", err)
	}
	return write(ctx, store, []metadata.Put{{Key: key, Delete: true}})
}

func write(ctx context.Context, store metadata.Store, puts []metadata.Put) error {
	_, _, err := store.Txn(ctx, nil, puts)
	switch {
	case errors.Is(err, metadata.ErrUnknown):
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case err != nil:
		return fmt.Errorf("admission: write the invitation: %w", err)
	}
	return nil
}

// validName reports whether --node-name can have this value.
func validName(node string) bool {
	return node != "" && len(node) <= maxName && !strings.ContainsFunc(node, func(r rune) bool {
		return strings.ContainsRune("/=,", r) || unicode.IsSpace(r) || !unicode.IsPrint(r)
	})
}
