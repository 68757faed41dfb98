//go:build linux

package keygate

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Heap is the memory of a process as the Go runtime reports it, in bytes.
type Heap struct {
	Live   int64 // objects reachable at the last collection
	Stacks int64 // goroutine stacks
	Free   int64 // free heap memory that was not returned to the system
}

// Collect makes the server collect garbage and returns its heap afterwards. The
// server must run with --pprof.
func (s *Server) Collect(ctx context.Context) (Heap, error) {
	// The second collection frees what sync.Pools kept over the first, and the third profile shows
	// what is left.
	for range 2 {
		if _, err := s.get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			return Heap{}, err
		}
	}
	body, err := s.get(ctx, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return Heap{}, err
	}
	return readHeap(body)
}

// readHeap reads the statistics at the end of a heap profile in text form.
func readHeap(profile []byte) (h Heap, err error) {
	var idle, released int64
	fields := map[string]*int64{"# HeapAlloc = ": &h.Live, "# Stack = ": &h.Stacks, "# HeapIdle = ": &idle, "# HeapReleased = ": &released}
	lines := bufio.NewScanner(bytes.NewReader(profile))
	lines.Buffer(nil, 1<<20)
	found := 0
	for lines.Scan() {
		for name, to := range fields {
			if text, ok := strings.CutPrefix(lines.Text(), name); ok {
				text, _, _ = strings.Cut(text, " ") // "# Stack" has a second figure: taken from the system
				if *to, err = strconv.ParseInt(text, 10, 64); err != nil {
					return h, fmt.Errorf("read the heap profile: %w", err)
				}
				found++
			}
		}
	}
	if found != len(fields) {
		return h, errors.Join(errors.New("the heap profile has no statistics"), lines.Err())
	}
	h.Free = idle - released
	return h, nil
}
