package queue

import (
	"bytes"
	"testing"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// BenchmarkBatch covers the encoding of one put: built at the edge, sealed by the leader, checked
// by the follower.
func BenchmarkBatch(b *testing.B) {
	body := bytes.Repeat([]byte{'x'}, 100)
	draft := func(n int) Draft {
		d := NewDraft(n * (len(body) + 5))
		for range n {
			d.Add(body)
		}
		return d.Draft(ident.RequestID{Producer: 1, N: 1})
	}
	for _, size := range []struct {
		name     string
		messages int
	}{{"1", 1}, {"100", 100}} {
		d := draft(size.messages)
		sealed := d.Seal(ident.Position{}, 1, 0, 1)
		b.Run("draft-"+size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = draft(size.messages)
			}
		})
		b.Run("seal-"+size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = d.Seal(ident.Position{}, 1, 0, 1)
			}
		})
		b.Run("decode-"+size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Decode(sealed.Bytes); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkIdentity covers what an id costs a put before it comes to its partition.
func BenchmarkIdentity(b *testing.B) {
	body := bytes.Repeat([]byte{'x'}, 100)
	id := []byte("0123456789abcdef")
	plain := NewDraft(len(body))
	plain.Add(body)
	without := plain.Draft(ident.RequestID{})
	with := without.ByContent(nil)
	for name, f := range map[string]func(){
		"id":                   func() { _ = IdentityOf(id) },
		"sequence":             func() { _ = IdentityOfSequence("producer", 7) },
		"content":              func() { _ = IdentityOfContent(nil, nil, body) },
		"content with headers": func() { _ = IdentityOfContent(nil, []byte(`{"region":"eu","##client_dispatch_tag":"blue"}`), body) },
		"by-content":           func() { _ = without.ByContent(nil) },
		"first":                func() { _, _ = with.First() },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}
