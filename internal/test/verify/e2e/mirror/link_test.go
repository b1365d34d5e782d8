package mirror

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// link passes connections to a broker until it is cut: then it resets them and takes no new ones.
type link struct {
	l     net.Listener
	to    string
	wg    sync.WaitGroup
	mu    sync.Mutex
	isCut bool
	conns map[net.Conn]bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return newLinkAt(t, l, to)
}

// newLinkAt is newLink with a listener of the caller.
func newLinkAt(t *testing.T, l net.Listener, to string) *link {
	k := &link{l: l, to: to, conns: map[net.Conn]bool{}}
	k.wg.Go(k.serve)
	t.Cleanup(func() {
		_ = l.Close()
		k.set(true)
		k.wg.Wait()
	})
	return k
}

func (k *link) address() string { return k.l.Addr().String() }

func (k *link) serve() {
	for {
		in, err := k.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", k.to)
		if err != nil || !k.keep(in, out) {
			_ = in.Close()
			if err == nil {
				_ = out.Close()
			}
			continue
		}
		k.wg.Go(func() { k.pass(in, out) })
		k.wg.Go(func() { k.pass(out, in) })
	}
}

// keep notes a connection; false: the link is cut.
func (k *link) keep(conns ...net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range conns {
		k.conns[c] = !k.isCut
	}
	return !k.isCut
}

func (k *link) pass(from, to net.Conn) {
	_, _ = io.Copy(to, from) // ends with the connection
	_, _ = from.Close(), to.Close()
	k.mu.Lock()
	delete(k.conns, from)
	k.mu.Unlock()
}

// set cuts the link, or mends it.
func (k *link) set(cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.isCut = cut
	for c := range k.conns {
		if cut {
			_ = c.Close()
			delete(k.conns, c)
		}
	}
}
