//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// scenario is one kind of work, which each peer does in turn.
type scenario struct {
	name, title string
	columns     []column
	run         func(ctx context.Context, st *stage, p *peer) (*sample, error)
}

// manyConnections is the number of connections in most scenarios.
const manyConnections = 64

func scenarios() []scenario {
	load := loadColumns()
	return []scenario{
		{"c64", "381-byte response, 64 connections", load, plainLoad(closedLoop(jsonPath+"1", manyConnections))},
		{"c1", "1 connection", load, plainLoad(closedLoop(jsonPath+"1", 1))},
		{"c8", "8 connections", load, plainLoad(closedLoop(jsonPath+"1", 8))},
		{"c512", "512 connections", load, plainLoad(closedLoop(jsonPath+"1", 512))},
		{"b100", "100-byte response", load, plainLoad(closedLoop(smallPath+"1", manyConnections))},
		{"b64k", "64 KiB response", load, plainLoad(closedLoop(largePath+"1", manyConnections))},
		{"tls", "TLS 1.3, HTTP/1.1, 64 connections", load, secureLoad(closedLoop(jsonPath+"1", manyConnections))},
		{"h2", "TLS 1.3, HTTP/2, 8 connections with 8 streams each", load, secureLoad(h2load(jsonPath+"1", 8, 8))},
		{"h2c64", "TLS 1.3, HTTP/2, 64 connections with 1 stream each", load, secureLoad(h2load(jsonPath+"1", 64, 1))},
		{"h2c1", "TLS 1.3, HTTP/2, 1 connection with 100 streams", load, secureLoad(h2load(jsonPath+"1", 1, 100))},
		{"h2grpc", "gRPC, 8 connections over TLS with 8 calls each, cleartext upstream", load, grpcLoad(8, 8)},
		{"h2grpc64", "gRPC, 64 connections over TLS with 1 call each, cleartext upstream", load, grpcLoad(64, 1)},
		{"rate30", "fixed rate, 30 % of nginx's peak", load, plainLoad(fixedRate(jsonPath+"1", 0.3))},
		{"rate60", "fixed rate, 60 % of nginx's peak", load, plainLoad(fixedRate(jsonPath+"1", 0.6))},
		{"idle", "idle connections, HTTP/1.1: added memory", idleColumns(), idleLoad(false, openPlain)},
		{"idletls", "idle connections, TLS 1.3, HTTP/1.1: added memory", idleColumns(), idleLoad(true, openTLS)},
		{"idleh2", "idle connections, TLS 1.3, HTTP/2: added memory", idleColumns(), idleLoad(true, openHTTP2)},
		{"bulk", "one large body in each direction", bulkColumns(), runBulk},
	}
}

func scenarioNames() (names []string) {
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

// loadResult is what a client measured in a run without failures.
type loadResult struct {
	requests       int
	elapsed        time.Duration
	p50, p99, p999 time.Duration
}

// load puts a proxy under load for the duration d.
type load func(ctx context.Context, st *stage, p *proxy, d time.Duration) (*loadResult, error)

func plainLoad(l load) func(context.Context, *stage, *peer) (*sample, error) {
	return func(ctx context.Context, st *stage, p *peer) (*sample, error) { return runLoad(ctx, st, p, mode{}, l) }
}

func secureLoad(l load) func(context.Context, *stage, *peer) (*sample, error) {
	return func(ctx context.Context, st *stage, p *peer) (*sample, error) {
		return runLoad(ctx, st, p, mode{secure: true}, l)
	}
}

// runLoad starts the peer, warms it up, and measures it under load.
func runLoad(ctx context.Context, st *stage, p *peer, m mode, l load) (*sample, error) {
	running, err := p.open(ctx, st, m)
	if err != nil {
		return nil, err
	}
	defer running.Stop()
	if _, err := l(ctx, st, running, st.o.warmup); err != nil {
		return nil, fmt.Errorf("warm up: %w", err)
	}
	before, err := running.CPU()
	if err != nil {
		return nil, err
	}
	seen, err := l(ctx, st, running, st.o.duration)
	if err != nil {
		return nil, err
	}
	after, err := running.CPU()
	if err != nil {
		return nil, err
	}
	inAll, err := running.Memory()
	if err != nil {
		return nil, err
	}
	perRequest, err := countCalls(ctx, st, running, l)
	if err != nil {
		return nil, err
	}
	milliseconds := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	return &sample{
		cpu:        float64((after - before).Nanoseconds()) / 1e3 / float64(seen.requests),
		throughput: float64(seen.requests) / seen.elapsed.Seconds(),
		p50:        milliseconds(seen.p50), p99: milliseconds(seen.p99), p999: milliseconds(seen.p999),
		memory: float64(inAll) / 1e6, calls: perRequest,
	}, nil
}
