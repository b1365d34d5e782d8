package etcdserver

// Crash ends the member without a word to the others.
func (s *Server) Crash() { s.etcd.Server.HardStop() }
