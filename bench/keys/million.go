//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/manykeys"
	"github.com/keygate/keygate/bench/stats"
	"github.com/keygate/keygate/client"
)

// few is the number of keys in the small store, with which a large store is compared.
const few = 10

// changes is how many keys are created and revoked to measure the cost of one change.
// The rate limit of the management API allows a burst of 200 calls.
const changes = 60

// measureKeys compares a server with many keys to one with few.
func measureKeys(ctx context.Context, o options, dir string, w io.Writer) ([]measure, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	small, err := measureStore(ctx, o, dir, true)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := manykeys.Fill(ctx, keygate.Database(dir), o.keys); err != nil {
		return nil, fmt.Errorf("fill the store: %w", err)
	}
	fmt.Fprintf(w, "wrote %d keys in %.1f s\n", o.keys, time.Since(start).Seconds())

	var starts, work []float64
	var large figures
	for round := range o.rounds {
		last := round == o.rounds-1
		f, err := measureStore(ctx, o, dir, last)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(w, "start %d: %.2f s, with %.2f s of CPU time\n", round+1, f.startup.Seconds(), f.work.Seconds())
		starts, work, large = append(starts, f.startup.Seconds()), append(work, f.work.Seconds()), f
	}
	milliseconds := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	with := fmt.Sprintf("with %d keys", o.keys)
	return []measure{
		{"start to ready, " + with, stats.Median(starts...), 8, "s"},
		{"its CPU time", stats.Median(work...), 0, "s"},
		{"live heap for each key", float64(large.live-small.live) / float64(o.keys), 250, "B"},
		{"resident memory, " + with, float64(large.resident) / 1e6, 0, "MB"},
		{fmt.Sprintf("create one key, with %d keys", few), milliseconds(small.create), 0, "ms"},
		{"create one key, " + with + ": difference", milliseconds(large.create - small.create), 5, "ms"},
		{fmt.Sprintf("revoke one key, with %d keys", few), milliseconds(small.revoke), 0, "ms"},
		{"revoke one key, " + with + ": difference", milliseconds(large.revoke - small.revoke), 5, "ms"},
	}, nil
}

type figures struct {
	startup, work  time.Duration // wall-clock and CPU time until ready
	create, revoke time.Duration // median of one call
	live, resident int64         // bytes: live heap after a collection, and resident memory
}

// measureStore starts a server on the store in dir and measures the start. If deep is
// true, it also measures memory and changes of keys, and leaves further keys in the
// store.
func measureStore(ctx context.Context, o options, dir string, deep bool) (f figures, err error) {
	s, err := keygate.Start(ctx, keygate.Config{Binary: o.binary, Dir: dir, Args: []string{"--pprof"}})
	if err != nil {
		return f, err
	}
	defer s.Stop()
	f.startup, f.work = s.Startup, s.StartupCPU
	if !deep {
		return f, nil
	}
	heap, err := s.Collect(ctx)
	if err != nil {
		return f, err
	}
	f.live = heap.Live
	if f.resident, err = s.Memory(); err != nil {
		return f, err
	}
	for range few {
		if _, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: "bench", Scope: "read"}); err != nil {
			return f, err
		}
	}
	var create, revoke []time.Duration
	for range changes {
		start := time.Now()
		k, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: "bench", Scope: "read"})
		if err != nil {
			return f, err
		}
		created := time.Now()
		if _, err := s.Admin.RevokeKey(ctx, k.KeyID); err != nil {
			return f, err
		}
		create, revoke = append(create, created.Sub(start)), append(revoke, time.Since(created))
	}
	f.create, f.revoke = stats.Median(create...), stats.Median(revoke...)
	return f, nil
}
