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

// Heap is what the Go runtime says of a process's memory, in bytes.
type Heap struct {
	Live   int64 // objects that were reachable at the last collection
	Stacks int64 // of goroutines
	Free   int64 // kept for objects to come, and not yet given back to the system
}

// Collect makes the server collect its garbage and returns what is left. It
// needs the flag --pprof.
func (s *Server) Collect(ctx context.Context) (Heap, error) {
	// The second collection frees what pools kept over the first, and the
	// third tells what is left after it.
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

// readHeap reads the figures that end a heap profile in text.
func readHeap(profile []byte) (h Heap, err error) {
	var idle, released int64
	fields := map[string]*int64{"# HeapAlloc = ": &h.Live, "# Stack = ": &h.Stacks, "# HeapIdle = ": &idle, "# HeapReleased = ": &released}
	lines := bufio.NewScanner(bytes.NewReader(profile))
	lines.Buffer(nil, 1<<20)
	found := 0
	for lines.Scan() {
		for name, to := range fields {
			if text, ok := strings.CutPrefix(lines.Text(), name); ok {
				text, _, _ = strings.Cut(text, " ") // of the stacks: in use, and taken from the system
				if *to, err = strconv.ParseInt(text, 10, 64); err != nil {
					return h, fmt.Errorf("read the heap profile: %w", err)
				}
				found++
			}
		}
	}
	if found != len(fields) {
		return h, errors.Join(errors.New("the heap profile lacks its figures"), lines.Err())
	}
	h.Free = idle - released
	return h, nil
}
