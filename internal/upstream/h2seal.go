package upstream

import (
	"net"
	"sync"
)

// sealer stands below a tls.Conn and collects its writes, so that they can be sent without
// blocking. crypto/tls writes from Read as well, when the server asks for a new key.
type sealer struct {
	*net.TCPConn

	mu         sync.Mutex
	collecting bool // since the handshake
	buf, spare []byte
}

func (s *sealer) collect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collecting = true
}

// Write implements net.Conn.
func (s *sealer) Write(p []byte) (int, error) {
	s.mu.Lock()
	if !s.collecting {
		s.mu.Unlock()
		return s.TCPConn.Write(p)
	}
	defer s.mu.Unlock()
	s.buf = append(s.buf, p...)
	return len(p), nil
}

// pending returns how many bytes were collected.
func (s *sealer) pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.buf)
}

// take returns what was collected. It must be given back.
func (s *sealer) take() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buf
	s.buf, s.spare = s.spare[:0], nil
	return b
}

// shrink frees large buffers. Nothing is pending.
func (s *sealer) shrink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare = small(s.spare)
	if len(s.buf) == 0 {
		s.buf = small(s.buf)
	}
}

// giveBack gives back the memory of what was taken, or nil to keep none.
func (s *sealer) giveBack(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare = b[:0]
}
