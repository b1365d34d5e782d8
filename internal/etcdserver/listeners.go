package etcdserver

import (
	"sync"

	"google.golang.org/grpc"
)

// listeners remembers the gRPC servers that etcd makes for its clients. etcd
// stops them in good order, which waits until every remote watch has ended or
// five seconds have passed; a broker that is told to stop must not.
type listeners struct {
	mu struct {
		sync.Mutex
		servers []*grpc.Server
	}
}

// add is etcd's hook for further services on the server.
func (l *listeners) add(s *grpc.Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.servers = append(l.mu.servers, s)
}

// stop closes all connections of clients.
func (l *listeners) stop() {
	l.mu.Lock()
	servers := l.mu.servers
	l.mu.Unlock()
	for _, s := range servers {
		s.Stop()
	}
}
