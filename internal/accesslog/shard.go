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
func (l *Shard) Emit(r *Record, methodText, path string) {
	if l == nil {
		return
	}
	if r.Method != OtherMethod {
		methodText = ""
	}
	methodText, path = methodText[:min(len(methodText), MaxMethod)], path[:min(len(path), MaxPath)]
	if len(path) > longPath {
		if !l.collector.reserveLong(int64(len(path))) {
			l.collector.lost.Add(1)
			return
		}
		path = strings.Clone(path)
	}
	l.mu.Lock()
	if l.chunk == nil || !l.chunk.add(r, methodText, path) {
		l.emitToNewChunk(r, methodText, path)
	}
	l.mu.Unlock()
}

// emitToNewChunk puts the record into a new chunk. The lane is locked.
func (l *Shard) emitToNewChunk(r *Record, methodText, path string) {
	full := l.chunk
	if l.chunk = nil; !l.closed {
		l.chunk = l.collector.swapChunk(full)
	}
	if l.chunk == nil || !l.chunk.add(r, methodText, path) {
		l.collector.lost.Add(1)
		if len(path) > longPath {
			l.collector.long.Add(-int64(len(path)))
		}
	}
}

// take returns the chunk that is being filled, or nil if nothing is in it.
func (l *Shard) take() *chunk {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.chunk
	if c == nil || c.n == 0 {
		return nil
	}
	l.chunk = nil
	return c
}

// close gives what is in the lane to the collector. All that comes later is
// lost.
func (l *Shard) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.chunk != nil {
		l.collector.addFull(l.chunk)
		l.chunk = nil
	}
}
