package spool_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/spool"
)

// harness is a queue and its directory.
type harness struct {
	*testing.T
	*spool.Queue
	cfg spool.Config
}

func newHarness(t *testing.T, maxBytes int64) *harness {
	t.Helper()
	h := &harness{T: t, cfg: spool.Config{Dir: filepath.Join(t.TempDir(), "spool"), Name: "q", MaxBytes: maxBytes}}
	h.reopen()
	return h
}

// reopen opens the queue as a process does after another one was killed.
func (h *harness) reopen() {
	h.Helper()
	q, err := spool.Open(h.cfg)
	if err != nil {
		h.Fatal(err)
	}
	h.Queue = q
	h.Cleanup(func() { _ = q.Close() })
}

func (h *harness) add(text string, records int) {
	h.Helper()
	if err := h.Append(spool.Frame{Records: records, At: time.UnixMicro(1_700_000_000_000_000), Payload: []byte(text)}); err != nil {
		h.Fatal(err)
	}
}

// drain returns the payloads of all frames, and "damaged N" where N records are damaged.
func (h *harness) drain() (all []string) {
	h.Helper()
	for {
		f, err := h.Next()
		var damage *spool.DamageError
		switch {
		case errors.As(err, &damage):
			all = append(all, fmt.Sprintf("damaged %d", damage.Records))
		case err != nil:
			h.Fatal(err)
		case f == nil:
			return all
		default:
			all = append(all, string(f.Payload))
			h.Drop()
		}
	}
}

func (h *harness) want(what string, got []string, want ...string) {
	h.Helper()
	if !slices.Equal(got, want) {
		h.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// files returns the paths of the segments, oldest first.
func (h *harness) files() []string {
	h.Helper()
	paths, err := filepath.Glob(filepath.Join(h.cfg.Dir, "*"))
	if err != nil {
		h.Fatal(err)
	}
	return paths
}

// Guarantee: frames come out in the order in which they went in, also when the process is killed at any time.
// After a kill, a frame that was read and not dropped comes again.
func TestOrderSurvivesKills(t *testing.T) {
	h := newHarness(t, 1<<20)
	h.add("a", 1)
	h.add("b", 1)
	h.reopen()
	h.add("c", 1)
	for range 2 {
		if f, err := h.Next(); err != nil || string(f.Payload) != "a" {
			t.Fatalf("got %v, %v, want a until it is dropped", f, err)
		}
	}
	h.Drop()
	h.reopen()
	h.add("d", 1)
	h.want("after two kills", h.drain(), "a", "b", "c", "d")
	if !h.Empty() || h.Bytes() != 0 {
		t.Errorf("the drained queue has %d bytes", h.Bytes())
	}
	if _, err := os.Stat(h.cfg.Dir); !os.IsNotExist(err) {
		t.Errorf("the directory of an empty spool is there: %v", err)
	}
}

// Guarantee: the size of the files is bounded, and draining makes room again before the queue is empty.
func TestSizeIsBounded(t *testing.T) {
	const maxBytes = 1 << 20
	h := newHarness(t, maxBytes)
	payload := bytes.Repeat([]byte("x"), 10<<10)
	n := 0
	for ; ; n++ {
		if err := h.Append(spool.Frame{Records: 1, Payload: payload}); err != nil {
			if !errors.Is(err, spool.ErrFull) {
				t.Fatal(err)
			}
			break
		}
	}
	var size int64
	for _, path := range h.files() {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > maxBytes || size < maxBytes*9/10 || size != h.Bytes() {
		t.Errorf("the files have %d bytes, and Bytes says %d; want both alike and nearly %d", size, h.Bytes(), maxBytes)
	}
	for range n / 2 {
		if _, err := h.Next(); err != nil {
			t.Fatal(err)
		}
		h.Drop()
	}
	if err := h.Append(spool.Frame{Records: 1, Payload: payload}); err != nil {
		t.Errorf("after half was drained: %v, want room", err)
	}
	if got := len(h.drain()); got != n-n/2+1 {
		t.Errorf("got %d frames, want %d", got, n-n/2+1)
	}
}

// Guarantee: a frame that is cut short at any byte, as by a kill or a full disk, is found and counted, and costs
// nothing else: the frames before it and in later segments are read.
func TestTornTail(t *testing.T) {
	h := newHarness(t, 1<<20)
	h.add("whole", 1)
	first := h.Bytes()
	h.add("torn", 7)
	path := h.files()[0]
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := first + 1; size < int64(len(content)); size++ {
		if err := os.MkdirAll(h.cfg.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		h.reopen()
		h.add("later", 1)
		damaged := "damaged 7"
		if size < first+24 { // the head is not whole either
			damaged = "damaged 1"
		}
		h.want(fmt.Sprintf("cut at %d", size), h.drain(), "whole", damaged, "later")
	}
}

// Guarantee: a changed byte anywhere in a frame is found.
func TestDamage(t *testing.T) {
	h := newHarness(t, 1<<20)
	h.add("whole", 1)
	first := h.Bytes()
	h.add("damaged", 7)
	path := h.files()[0]
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := first; at < int64(len(content)); at++ {
		changed := slices.Clone(content)
		changed[at] ^= 0x10
		if err := os.MkdirAll(h.cfg.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		h.reopen()
		if got := h.drain(); len(got) != 2 || got[0] != "whole" || got[1] != "damaged 7" && got[1] != "damaged 1" {
			t.Errorf("byte %d changed: got %q", at, got)
		}
	}
}

// Guarantee: only the user of the server can read the spool, and an empty file of a killed process does not count
// as damage.
func TestFiles(t *testing.T) {
	h := newHarness(t, 1<<20)
	h.add("a", 1)
	if runtime.GOOS != "windows" {
		for path, want := range map[string]os.FileMode{h.cfg.Dir: 0o700, h.files()[0]: 0o600} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != want {
				t.Errorf("%s has mode %04o, want %04o", path, got, want)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(h.cfg.Dir, "q-00000000000000ff"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.reopen()
	h.add("b", 1)
	h.want("with an empty file", h.drain(), "a", "b")
}

// Guarantee: queues that share a directory, which the last queue to be drained removes, take every frame.
func TestQueuesShareADirectory(t *testing.T) {
	h := newHarness(t, 1<<20)
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		q, err := spool.Open(spool.Config{Dir: h.cfg.Dir, Name: name, MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for range 500 {
				if err := q.Append(spool.Frame{Records: 1, Payload: []byte(name)}); err != nil {
					t.Error(err)
					return
				}
				if f, err := q.Next(); err != nil || string(f.Payload) != name {
					t.Errorf("got %v, %v, want what was added", f, err)
					return
				}
				q.Drop()
			}
		})
	}
	all.Wait()
}

// Guarantee: Flush syncs the directory of a new segment, too: as long as it cannot, it returns an error.
func TestFlushSyncsTheDirectory(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows cannot sync a directory")
	}
	h := newHarness(t, 1<<20)
	h.add("a", 1)
	if err := os.Rename(h.cfg.Dir, h.cfg.Dir+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := h.Flush(); err == nil {
		t.Error("a directory that is not there was synced")
	}
	if err := os.Rename(h.cfg.Dir+"-away", h.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	if err := h.Flush(); err != nil {
		t.Error(err)
	}
}
