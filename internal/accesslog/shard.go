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

// Emit adds a record. It copies its arguments, does not block, and allocates only while the
// Collector's memory grows to its bound, and for a path of more than 1 KiB. methodText is
// used only for OtherMethod. A record for which there is no room is counted as lost.
func (s *Shard) Emit(r *Record, methodText, path string) {
	if s == nil {
		return
	}
	if r.Method != OtherMethod {
		methodText = ""
	}
	methodText, path = methodText[:min(len(methodText), MaxMethod)], path[:min(len(path), MaxPath)]
	if len(path) > longPath {
		if !s.collector.reserveLong(int64(len(path))) {
			s.collector.lost.Add(1)
			return
		}
		path = strings.Clone(path)
	}
	s.mu.Lock()
	if s.chunk == nil || !s.chunk.add(r, methodText, path) {
		s.emitToNewChunk(r, methodText, path)
	}
	s.mu.Unlock()
}

// emitToNewChunk hands over the full chunk and adds the record to a new one. The caller
// holds the lock.
func (s *Shard) emitToNewChunk(r *Record, methodText, path string) {
	full := s.chunk
	if s.chunk = nil; !s.closed {
		s.chunk = s.collector.swapChunk(full)
	}
	if s.chunk == nil || !s.chunk.add(r, methodText, path) {
		s.collector.lost.Add(1)
		if len(path) > longPath {
			s.collector.long.Add(-int64(len(path)))
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
