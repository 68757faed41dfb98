package upstream

import (
	"crypto/tls"
	"sync"
)

// A session that a handshake can resume has the certificates of the server, and a ticket for which the server chooses up to
// 64 KiB. A pool keeps one as long as it lives, so what they take is bounded apart from what pools weigh.
const (
	maxSession         = 64 << 10 // of one, in bytes
	maxAccountSessions = 32 << 20 // of the sessions of an account
)

// sessionRoom is how much the sessions of each account take. While it is locked, nothing else is.
type sessionRoom struct {
	mu   sync.Mutex
	used map[string]int64
}

// session is the last session of a pool's server. It is the pool's tls.ClientSessionCache, which crypto/tls asks for the one
// name of the server only.
type session struct {
	room    *sessionRoom
	account string

	// With room.mu held.
	last  *tls.ClientSessionState
	size  int64
	asked bool // since the last Put: a server may send any number of tickets, and one for each handshake is looked at
	ended bool // the pool was forgotten
}

var _ tls.ClientSessionCache = (*session)(nil)

// Get implements tls.ClientSessionCache.
func (s *session) Get(string) (*tls.ClientSessionState, bool) {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.asked = true
	return s.last, s.last != nil
}

// Put implements tls.ClientSessionCache. It does not keep a session that is too large, or for which the account has no room:
// then the next handshake is a whole one.
func (s *session) Put(_ string, state *tls.ClientSessionState) {
	if state != nil && !s.expects() {
		return
	}
	size := sessionSize(state)
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.drop()
	if size == 0 || size > maxSession || s.ended || s.room.used[s.account]+size > maxAccountSessions {
		return
	}
	if s.room.used == nil {
		s.room.used = map[string]int64{}
	}
	s.room.used[s.account] += size
	s.last, s.size = state, size
}

// expects reports whether a handshake has asked for a session since expects was called last.
func (s *session) expects() bool {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	asked := s.asked
	s.asked = false
	return asked
}

// end drops the session, and keeps no other.
func (s *session) end() {
	if s == nil {
		return
	}
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.drop()
	s.ended = true
}

func (s *session) drop() {
	if s.last == nil {
		return
	}
	if s.room.used[s.account] -= s.size; s.room.used[s.account] == 0 {
		delete(s.room.used, s.account)
	}
	s.last, s.size = nil, 0
}

// sessionSize returns how many bytes a session takes, with its certificates as they are and parsed; 0 for none.
func sessionSize(s *tls.ClientSessionState) int64 {
	if s == nil {
		return 0
	}
	ticket, state, err := s.ResumptionState()
	if err != nil || state == nil {
		return 0
	}
	encoded, err := state.Bytes()
	if err != nil {
		return 0
	}
	return int64(len(ticket) + 3*len(encoded))
}
