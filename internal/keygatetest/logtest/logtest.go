// Package logtest records log output in tests. It imports nothing of Keygate, so that
// internal tests of any package can use it.
package logtest

import (
	"bytes"
	"strings"
	"sync"
)

// Recorder keeps what is written to it, usually by a slog.Handler. The zero value is
// empty and ready to use. It is safe for concurrent use.
type Recorder struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (r *Recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(p)
}

// String returns everything written so far.
func (r *Recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

// Count returns how many times s was written.
func (r *Recorder) Count(s string) int { return strings.Count(r.String(), s) }
