package server

import "net"

// LookupAddr returns the bound address of the lookup port, for tests that listen on port 0.
func (s *Server) LookupAddr() net.Addr { return address(s.lookup) }
