package ratelimit

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/logtest"
	"github.com/keygate/keygate/internal/logpace"
)

// Guarantee: however often the limit store is lost and there again, the log has a few lines a minute about it. The
// lines count all losses, and the last line is true 20 s later at most. A single loss and a single return are
// logged at once.
func TestFlappingStoreIsToldInAFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Recorder
		store := nodeStore{newMemoryLimitStore(), "a", nil}
		s, err := NewSharing(SharingConfig{
			Mode: Leased, OnLoss: DivideOnLoss, Store: store, Now: NewClock().Now, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Version: func() int64 { return 1 },
			CatchUp: func(context.Context) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := &clusterNode{sharing: s, clock: s.cfg.Now}
		limit := n.limit(1, Config{Sustained: perSecondRate(1000)})
		away := func(down bool, lasts time.Duration) {
			store.set(func() { store.down = down })
			for end := time.Now().Add(lasts); time.Now().Before(end); {
				_, _, _ = n.decide(limit)
				<-time.After(10 * time.Millisecond)
			}
		}
		last := func() string {
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			return lines[len(lines)-1]
		}
		away(false, time.Second)
		away(true, time.Second)
		if log.Count("is lost") != 1 || log.Count("\n") != 1 {
			t.Errorf("after a loss: %s", log.String())
		}
		away(false, time.Second)
		if log.Count("is there again") != 1 || log.Count("\n") != 2 {
			t.Errorf("after the return: %s", log.String())
		}

		began := time.Now()
		for time.Since(began) < 10*time.Minute {
			away(true, 150*time.Millisecond)
			away(false, 150*time.Millisecond)
		}
		losses, lines := s.Stats().Losses, log.Count("\n")
		if most := 2 + logpace.Burst + int(10*time.Minute/logpace.Every); losses < 1000 || lines > most {
			t.Errorf("%d losses in %d lines, want 1000 losses at least, and %d lines at most", losses, lines, most)
		}
		away(true, logpace.Every+time.Second)
		if !strings.Contains(last(), "is lost") {
			t.Errorf("the store is lost, and the log ends with %s", last())
		}
		away(false, logpace.Every+time.Second)
		if !strings.Contains(last(), "is there again") {
			t.Errorf("the store is there again, and the log ends with %s", last())
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
