package upstream

import (
	"bytes"
	"testing"

	"github.com/keygate/keygate/internal/netguard"
)

// replayPool returns a pool of connections of an account.
func replayPool(t *testing.T, pools *Pools, account string) *H2Pool {
	t.Helper()
	p, err := pools.Multiplexed(Origin{Scheme: "h2c", Host: "service.test", Account: account})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Guarantee: a body of at most 64 KiB is kept whole, in whatever pieces it comes; of a longer body
// nothing is kept, and its memory is free.
func TestReplayKeepsShortBodies(t *testing.T) {
	pools, err := NewPools(Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer pools.Close()
	p := replayPool(t, pools, "a")
	for _, size := range []int{0, 1, smallReplay, smallReplay + 1, MaxReplay, MaxReplay + 1} {
		for _, piece := range []int{1000, 1 << 20} {
			body := bytes.Repeat([]byte("x1"), size)[:size]
			var r Replay
			r.Begin(p)
			for rest := body; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
				r.Add(rest[:min(piece, len(rest))])
			}
			got, ok := r.Bytes()
			if want := size <= MaxReplay; ok != want || ok && !bytes.Equal(got, body) {
				t.Errorf("size %d in pieces of %d: got %d bytes, kept %v; want kept %v", size, piece, len(got), ok, want)
			}
			if ok {
				r.Drop()
			}
			if used := pools.replays.used.Load(); used != 0 || p.replays.Load() != 0 {
				t.Fatalf("size %d in pieces of %d: %d bytes are in use afterwards, want 0", size, piece, used)
			}
		}
	}
}

// Guarantee: the kept bytes of bodies are bounded, for each account and in all, so that an account with
// many uploads leaves room for the others; and all memory is free again at the end.
func TestReplaysAreBounded(t *testing.T) {
	pools, err := NewPools(Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer pools.Close()
	var all []*Replay
	fill := func(account string) (kept int) {
		p := replayPool(t, pools, account)
		for range maxReplays/MaxReplay + 1 {
			r := &Replay{}
			r.Begin(p)
			r.Add(make([]byte, smallReplay+1))
			if _, ok := r.Bytes(); ok {
				kept++
			}
			all = append(all, r)
		}
		return kept
	}
	for _, c := range []struct {
		account string
		want    int
	}{{"a", maxAccountReplays / MaxReplay}, {"a", 0}, {"b", maxAccountReplays / MaxReplay}, {"c", 0}} {
		if kept := fill(c.account); kept != c.want {
			t.Errorf("account %s: got %d bodies kept, want %d", c.account, kept, c.want)
		}
	}
	for _, r := range all {
		r.Drop()
	}
	if used := pools.replays.used.Load(); used != 0 {
		t.Errorf("%d bytes are in use at the end, want 0", used)
	}
}
