package accesslog

import (
	"strings"
	"sync"
)

// Shard takes records from the request path. A connection keeps one for its
// life; several connections may share it. A nil Shard takes and forgets.
type Shard struct {
	mu        sync.Mutex
	chunk     *chunk // that is being filled; nil after it was taken
	closed    bool   // nobody will take what comes now
	collector *Collector
	_         [96]byte // shards do not share a cache line
}

// Emit hands a record over. It copies what it is given, does not block, and
// allocates only while the collector's memory grows to its bound, and for a path of
// more than 1 KiB. methodText is kept for OtherMethod alone. A record for which
// there is no room is counted as lost.
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

// emitToNewChunk puts the record into a new chunk. The lane is locked.
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

// take returns the chunk that is being filled, or nil if nothing is in it.
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

// close gives what is in the lane to the collector. All that comes later is
// lost.
func (s *Shard) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.chunk != nil {
		s.collector.addFull(s.chunk)
		s.chunk = nil
	}
}
