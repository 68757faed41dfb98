//go:build unix

package redistest

import "syscall"

const (
	stop = syscall.SIGSTOP
	cont = syscall.SIGCONT

	terminate = syscall.SIGTERM
)

func (s *Server) signal(sig syscall.Signal) {
	if err := s.process.Process.Signal(sig); err != nil {
		s.t.Errorf("signal redis-server: %v", err)
	}
}
