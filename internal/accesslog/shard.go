package accesslog

import (
	"strings"
	"sync"
)

// Shard takes records from the request path. Each connection uses one shard for its life;
// connections share shards. A nil Shard discards records.
type Shard struct {
	mu        sync.Mutex
	chunk     *chunk // being filled; nil after it was taken
	closed    bool   // later records are lost
	collector *Collector
	_         [96]byte // shards do not share a cache line
}

// Texts are the texts of a record. Method is used only for OtherMethod.
type Texts struct {
	Method, Path, Owner, Plan, UpstreamName, Target, Detail string
	// SideReason says why a split decided for the upstream.
	SideReason string
	// Cost has the costs of the request, by AppendCost.
	Cost string
	// Token says with whose token the request was made; nil without one.
	Token *Token
	// AttemptList has its attempts, by AppendAttempt, and what AppendUntried says.
	AttemptList string
}

// Emit adds a record with a method and a path. It is EmitTexts without further texts.
func (s *Shard) Emit(r *Record, methodText, path string) {
	s.EmitTexts(r, &Texts{Method: methodText, Path: path})
}

// EmitTexts adds a record. It copies its arguments, except the owner, the plan, the upstream, the reason of its side, the target and the token, which must not
// share the memory of a request. It does not block, and allocates only while the Collector's
// memory grows to its bound, and for a path of more than 1 KiB. Long texts are cut. A record
// for which there is no room is counted as lost.
func (s *Shard) EmitTexts(r *Record, t *Texts) {
	if s == nil {
		return
	}
	if r.Method != OtherMethod {
		t.Method = ""
	}
	t.Method, t.Path, t.Detail, t.Cost = cut(t.Method, MaxMethod), cut(t.Path, MaxPath), cut(t.Detail, MaxDetail), cut(t.Cost, MaxCost)
	t.AttemptList = cut(t.AttemptList, MaxAttempts)
	if len(t.Path) > longPath {
		if !s.collector.reserveLong(int64(len(t.Path))) {
			s.collector.lost.Add(1)
			return
		}
		t.Path = strings.Clone(t.Path)
	}
	s.mu.Lock()
	if s.chunk == nil || !s.chunk.add(r, t) {
		s.emitToNewChunk(r, t)
	}
	s.mu.Unlock()
}

// cut returns the first n bytes of s.
func cut(s string, n int) string { return s[:min(len(s), n)] }

// emitToNewChunk hands over the full chunk and adds the record to a new one. The caller
// holds the lock.
func (s *Shard) emitToNewChunk(r *Record, t *Texts) {
	full := s.chunk
	if s.chunk = nil; !s.closed {
		s.chunk = s.collector.swapChunk(full)
	}
	if s.chunk == nil || !s.chunk.add(r, t) {
		s.collector.lost.Add(1)
		if len(t.Path) > longPath {
			s.collector.long.Add(-int64(len(t.Path)))
		}
	}
}

// take removes and returns the chunk that is being filled, or returns nil if it has no
// entries.
func (s *Shard) take() *chunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chunk
	if c == nil || c.n == 0 {
		return nil
	}
	s.chunk = nil
	return c
}

// close hands the chunk to the Collector. Later records are lost.
func (s *Shard) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.chunk != nil {
		s.collector.addFull(s.chunk)
		s.chunk = nil
	}
}
