//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/stats"
	"github.com/keygate/keygate/client"
)

// few is the number of keys that a server with many is compared with.
const few = 10

// changes is how many keys are created and revoked to tell what one costs. The
// management API lets a key make 200 calls at once.
const changes = 60

// measureKeys compares a server that has many keys with one that has few.
func measureKeys(ctx context.Context, o options, dir string, w io.Writer) ([]measure, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	small, err := measureStore(ctx, o, dir, true)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := fill(ctx, keygate.Database(dir), o.keys); err != nil {
		return nil, fmt.Errorf("fill the store: %w", err)
	}
	fmt.Fprintf(w, "wrote %d keys in %.1f s\n", o.keys, time.Since(begun).Seconds())

	var starts, work []float64
	var large figures
	for round := range o.rounds {
		last := round == o.rounds-1
		f, err := measureStore(ctx, o, dir, last)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(w, "start %d: %.2f s, of which %.2f s of processor time\n", round+1, f.startup.Seconds(), f.work.Seconds())
		starts, work, large = append(starts, f.startup.Seconds()), append(work, f.work.Seconds()), f
	}
	milliseconds := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	with := fmt.Sprintf("with %d keys", o.keys)
	return []measure{
		{"start to ready, " + with, stats.Median(starts...), 8, "s"},
		{"its processor time", stats.Median(work...), 0, "s"},
		{"live heap for each key", float64(large.live-small.live) / float64(o.keys), 250, "B"},
		{"resident memory, " + with, float64(large.resident) / 1e6, 0, "MB"},
		{fmt.Sprintf("create one key, with %d keys", few), milliseconds(small.create), 0, "ms"},
		{"create one key, " + with + ": more", milliseconds(large.create - small.create), 5, "ms"},
		{fmt.Sprintf("revoke one key, with %d keys", few), milliseconds(small.revoke), 0, "ms"},
		{"revoke one key, " + with + ": more", milliseconds(large.revoke - small.revoke), 5, "ms"},
	}, nil
}

type figures struct {
	startup, work  time.Duration // until ready: by the clock, and of the processors
	create, revoke time.Duration // the median of one call
	live, resident int64         // bytes, the first after a collection
}

// measureStore starts a server on the store in dir. If deep, it measures more
// than the start, and leaves few keys more in the store.
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
		begun := time.Now()
		k, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: "bench", Scope: "read"})
		if err != nil {
			return f, err
		}
		created := time.Now()
		if _, err := s.Admin.RevokeKey(ctx, k.KeyID); err != nil {
			return f, err
		}
		create, revoke = append(create, created.Sub(begun)), append(revoke, time.Since(created))
	}
	f.create, f.revoke = stats.Median(create...), stats.Median(revoke...)
	return f, nil
}
