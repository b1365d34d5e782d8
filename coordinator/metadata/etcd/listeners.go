package etcd

import (
	"sync"

	"google.golang.org/grpc"
)

// listeners collects the gRPC servers of etcd's client port. etcd would stop them gracefully, which takes until every remote
// watch has ended, or five seconds: too long for the stop of a broker.
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

// stop closes all client connections.
func (l *listeners) stop() {
	l.mu.Lock()
	servers := l.mu.servers
	l.mu.Unlock()
	for _, s := range servers {
		s.Stop()
	}
}
