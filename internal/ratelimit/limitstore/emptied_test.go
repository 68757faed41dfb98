package limitstore

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/redistest"
	"github.com/keygate/keygate/internal/ratelimit"
)

// logBuffer is a log that several goroutines write.
type logBuffer struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *logBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.out.String(), text)
}

// admits sends one request and reports whether it passed. It is sent again while the store does not answer in time.
func (n *node) admits(t *testing.T, limit ratelimit.Limit) bool {
	t.Helper()
	var r ratelimit.Result
	awaittest.True(t, "the store decides in time", func() (decided bool) {
		var err error
		r, err = n.decide(limit)
		return err == nil
	})
	return r == ratelimit.Admitted
}

// spend sends requests until one is refused, and returns how many passed.
func (n *node) spend(t *testing.T, limit ratelimit.Limit) (passed int) {
	t.Helper()
	for n.admits(t, limit) {
		passed++
	}
	return passed
}

// Guarantee: FLUSHALL, after which the server has the same run_id, is noticed at the first question of a node about a
// limit that it knows: the limit goes on from its level, and the loss is counted and logged once by each node,
// however many buckets it knows. So is each later loss, and a restart is counted once too.
func TestFlushIsNoticed(t *testing.T) {
	for _, mode := range []ratelimit.Mode{ratelimit.Leased, ratelimit.Exact} {
		t.Run(string(mode), func(t *testing.T) {
			server := redistest.Start(t)
			var logs [2]logBuffer
			var nodes [2]*node
			var limits [2][3]ratelimit.Limit
			for i := range nodes {
				nodes[i] = startNode(t, server, string(rune('a'+i)), nodeOptions{mode: mode, log: &logs[i], onLoss: ratelimit.RefuseOnLoss})
				for j := range limits[i] {
					limits[i][j] = nodes[i].limit(byte(j), ratelimit.Config{Sustained: rate(100, 24*time.Hour)})
				}
			}
			raw := newStore(t, server, "c")
			for round := range 2 {
				for j := range limits[0] {
					one(t, raw, int64(58-48*round), perDay((&ratelimit.Name{Account: "acct", Kind: id.Route, Owner: [16]byte{byte(j)}}).String(), 100))
					for i := range nodes {
						nodes[i].admits(t, limits[i][j]) // and hears of the others
					}
				}
				flush(t, raw)
				for i := range nodes {
					for j := range limits[i] {
						nodes[i].admits(t, limits[i][j])
					}
					if got, logged := nodes[i].store.Stats().Replaced, logs[i].count("was emptied"); got != int64(round+1) || logged != round+1 {
						t.Errorf("after FLUSHALL number %d node %d has counted %d and logged %d", round+1, i, got, logged)
					}
				}
			}
			for j := range limits[0] {
				// 58, 4, 10 and 4 have passed. The store lost what the other node was granted since a node last
				// heard of the level.
				if passed := nodes[0].spend(t, limits[0][j]) + nodes[1].spend(t, limits[1][j]); passed > 24+2 {
					t.Errorf("limit %d: %d passed after 76 of 100, of which FLUSHALL has hidden 72", j, passed)
				}
			}
			server.Kill()
			server.Restart()
			for i := range nodes {
				awaitStore(t, nodes[i].store)
				for j := range limits[i] {
					nodes[i].admits(t, limits[i][j])
				}
				if got, logged := nodes[i].store.Stats().Replaced, logs[i].count("was emptied"); got != 3 || logged != 2 {
					t.Errorf("after a restart node %d has counted %d and logged that the store was emptied %d times, want 3 and 2", i, got, logged)
				}
			}
		})
	}
}

// flush removes everything.
func flush(t *testing.T, s *Store) {
	t.Helper()
	c := *s.client.Load()
	if err := c.Do(t.Context(), c.B().Flushall().Build()).Error(); err != nil {
		t.Fatal(err)
	}
}
