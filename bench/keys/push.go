//go:build linux

package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/stats"
	"github.com/keygate/keygate/client"
)

// measurePushes pushes each document to a server that has just started.
func measurePushes(ctx context.Context, o options, dir string, w io.Writer) ([]measure, error) {
	var all []measure
	for _, spec := range []struct {
		file             string
		seconds, maximum float64 // targets for the time, and for memory in MB
	}{{"github.json.gz", 4, 400}, {"openai.yaml.gz", 3, 0}} {
		content, err := unpack(filepath.Join(o.specs, spec.file))
		if err != nil {
			return nil, fmt.Errorf("read a document: %w", err)
		}
		var seconds, peaks []float64
		for range o.rounds {
			taken, peak, err := push(ctx, o, dir, content)
			if err != nil {
				return nil, fmt.Errorf("push %s: %w", spec.file, err)
			}
			fmt.Fprintf(w, "push %s: %.2f s, %d MB\n", spec.file, taken.Seconds(), peak/1e6)
			seconds, peaks = append(seconds, taken.Seconds()), append(peaks, float64(peak)/1e6)
		}
		all = append(all,
			measure{"PUT spec, " + spec.file, stats.Median(seconds...), spec.seconds, "s"},
			measure{"its peak resident memory of the whole process", stats.Quantile(1, peaks...), spec.maximum, "MB"})
	}
	return all, nil
}

// push starts a server on an empty store and pushes content. It returns the time that
// the push took and the peak resident memory of the process in bytes.
func push(ctx context.Context, o options, dir string, content []byte) (taken time.Duration, peak int64, err error) {
	own, err := os.MkdirTemp(dir, "push-")
	if err != nil {
		return 0, 0, err
	}
	s, err := keygate.Start(ctx, keygate.Config{Binary: o.binary, Dir: own})
	if err != nil {
		return 0, 0, err
	}
	defer s.Stop()
	g, err := s.Admin.CreateGateway(ctx, client.CreateGatewayRequest{Name: "bench", UpstreamURL: "http://127.0.0.1:1"})
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if _, err := s.Admin.PushSpec(ctx, g.GatewayID, content, false); err != nil {
		return 0, 0, err
	}
	taken = time.Since(start)
	peak, err = s.PeakMemory()
	return taken, peak, err
}

func unpack(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
