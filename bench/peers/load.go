//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/keygate/keygate/bench/openloop"
	"github.com/keygate/keygate/bench/stats"
	"github.com/keygate/keygate/bench/wrk"
)

// closedLoop returns a load that sends a request on each of the connections, waits for the
// response, and sends the next. A failed request is an error.
func closedLoop(target string, connections int) load {
	return func(ctx context.Context, st *stage, p *proxy, d time.Duration) (*loadResult, error) {
		r, err := wrk.Run(ctx, wrk.Config{URL: p.URL(target), Key: p.key, Connections: connections, Duration: d, Dir: st.dir})
		if err != nil {
			return nil, err
		}
		if r.Failures > 0 {
			return nil, fmt.Errorf("%d of %d requests failed", r.Failures, r.Requests)
		}
		return &loadResult{requests: r.Requests, elapsed: r.Elapsed, p50: r.P50, p99: r.P99, p999: r.P999}, nil
	}
}

// h2load returns the same kind of load over HTTP/2. more are further arguments of h2load.
func h2load(target string, connections, streams int, more ...string) load {
	return func(ctx context.Context, st *stage, p *proxy, d time.Duration) (*loadResult, error) {
		log := filepath.Join(st.dir, "h2load.log")
		if err := os.WriteFile(log, nil, 0o600); err != nil { // h2load appends to it
			return nil, err
		}
		args := []string{"-t1", fmt.Sprintf("-c%d", connections), fmt.Sprintf("-m%d", streams), fmt.Sprintf("-D%.0f", max(1, d.Seconds())), "--log-file", log}
		args = append(args, more...)
		if p.key != "" {
			args = append(args, "-H", "authorization: Bearer "+p.key)
		}
		out, err := tool(ctx, "h2load", append(args, p.URL(target))...)
		if err != nil {
			return nil, err
		}
		if !strings.Contains(out, "Application protocol: h2\n") {
			return nil, fmt.Errorf("h2load did not use HTTP/2:\n%s", out)
		}
		content, err := os.ReadFile(log)
		if err != nil {
			return nil, err
		}
		o, err := readH2load(string(content))
		if err != nil {
			return nil, fmt.Errorf("%w:\n%s", err, out)
		}
		return o, nil
	}
}

// readH2load parses the log of h2load. Each line has the start time of a request, its
// status and its duration; times are in microseconds.
func readH2load(log string) (*loadResult, error) {
	var took []int64
	var first, last int64
	for lines := bufio.NewScanner(strings.NewReader(log)); lines.Scan(); {
		var start, status, length int64
		if _, err := fmt.Sscan(lines.Text(), &start, &status, &length); err != nil {
			return nil, fmt.Errorf("parse the log of h2load: %w: %q", err, lines.Text())
		}
		if status != 200 {
			return nil, fmt.Errorf("a request got status %d", status)
		}
		if first == 0 || start < first {
			first = start
		}
		last = max(last, start+length)
		took = append(took, length)
	}
	if len(took) == 0 {
		return nil, errors.New("no request succeeded")
	}
	of := func(q float64) time.Duration { return time.Duration(stats.Quantile(q, took...)) * time.Microsecond }
	return &loadResult{
		requests: len(took), elapsed: time.Duration(last-first) * time.Microsecond, p50: of(0.5), p99: of(0.99), p999: of(0.999),
	}, nil
}

// fixedRate returns a load at the given fraction of the peak rate, however long the
// responses take.
func fixedRate(target string, part float64) load {
	return func(ctx context.Context, st *stage, p *proxy, d time.Duration) (*loadResult, error) {
		address, err := netip.ParseAddrPort(p.address)
		if err != nil {
			return nil, err
		}
		request := "GET " + target + " HTTP/1.1\r\nHost: " + p.address + "\r\n"
		if p.key != "" {
			request += "Authorization: Bearer " + p.key + "\r\n"
		}
		r, err := openloop.Run(ctx, openloop.Config{
			Address: address, Request: []byte(request + "\r\n"), Connections: manyConnections, Rate: part * st.o.peak, Duration: d,
		})
		if err != nil {
			return nil, err
		}
		if r.Failures > 0 || len(r.Latencies) == 0 {
			return nil, fmt.Errorf("%d requests failed and %d succeeded", r.Failures, len(r.Latencies))
		}
		of := func(q float64) time.Duration { return stats.Quantile(q, r.Latencies...) }
		return &loadResult{requests: len(r.Latencies), elapsed: r.Elapsed, p50: of(0.5), p99: of(0.99), p999: of(0.999)}, nil
	}
}
