//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/client"
)

const (
	// manyRoutes is the number of routes of a gateway.
	manyRoutes = 600
	// base is how long the first ejection of a target lasts, by default.
	base = 10 * time.Second
	// steady is the rate of the scenarios that name one, in requests a second.
	steady = 1000
)

// stage is a running server with one gateway, whose default upstream has targets. Each scenario has stages of its own, since
// the ejections of a target last longer each time.
type stage struct {
	dir     string
	server  *keygate.Server
	key     string
	targets []*target
	gateway *client.Gateway
	log     string // the access log
}

// openStage starts targets and a server in a new directory. Targets without an address get one. The caller must close the
// stage.
func openStage(ctx context.Context, o options, dir string, targets ...*target) (_ *stage, err error) {
	st := &stage{targets: targets}
	defer func() {
		if err != nil {
			st.close()
		}
	}()
	if st.dir, err = os.MkdirTemp(dir, ""); err != nil {
		return nil, err
	}
	if err := st.startTargets(ctx); err != nil {
		return nil, err
	}
	st.log = filepath.Join(st.dir, "access.log")
	st.server, err = keygate.Start(ctx, keygate.Config{Binary: o.binary, Dir: st.dir, Args: []string{"--log-level", "error", "--access-log", st.log}})
	if err != nil {
		return nil, err
	}
	k, err := st.server.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: "bench", Scope: "read"})
	if err != nil {
		return nil, err
	}
	st.key = k.Secret
	st.gateway, err = st.open(ctx, "several", "http", targets)
	return st, err
}

// startTargets gives targets addresses and starts those that are not absent.
func (st *stage) startTargets(ctx context.Context) error {
	addresses, err := keygate.FreeAddresses(len(st.targets))
	if err != nil {
		return err
	}
	for i, t := range st.targets {
		if t.address == "" {
			t.address = addresses[i]
		}
		if t.absent {
			continue
		}
		if err := t.start(ctx, st.dir); err != nil {
			return err
		}
	}
	return nil
}

// open creates a gateway with 600 routes, whose default upstream has the targets, at URLs with the scheme.
func (st *stage) open(ctx context.Context, name, scheme string, targets []*target) (*client.Gateway, error) {
	var all []client.TargetInput
	for _, t := range targets {
		all = append(all, client.TargetInput{URL: scheme + "://" + t.address})
	}
	up := client.UpstreamInput{Name: "default", Targets: &all}
	g, err := st.server.Admin.CreateGateway(ctx, client.CreateGatewayRequest{Name: name, Upstreams: &[]client.UpstreamInput{up}})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(`{"openapi":"3.1.0","info":{"title":"targets","version":"1"},"paths":{`)
	for i := range manyRoutes {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%s":{"get":{}}`, path(i))
	}
	b.WriteString(`}}`)
	_, err = st.server.Admin.PushSpec(ctx, g.GatewayID, b.Bytes(), false)
	return g, err
}

// close stops the server and the targets.
func (st *stage) close() {
	if st.server != nil {
		st.server.Stop()
	}
	for _, t := range st.targets {
		if t.Process != nil {
			t.Stop()
		}
	}
}

// load returns a load for the gateway: a request at a time on each connection, of one route.
func (st *stage) load(duration time.Duration) load {
	return load{address: st.server.Gateway, hosts: []string{st.gateway.Hostname}, key: st.key, routes: 1, duration: duration}
}

// during sends a load and meanwhile calls do, after the time that the load takes to begin.
func (st *stage) during(ctx context.Context, l load, after time.Duration, do func() error) (samples, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { // it sends its error
		err := wait(ctx, after)
		if err == nil {
			err = do()
		}
		if err != nil {
			cancel()
		}
		done <- err
	}()
	got, err := l.run(ctx)
	if err := <-done; err != nil {
		return nil, err
	}
	return got, err
}

// attempts returns how many attempts each target has had.
func (st *stage) attempts(ctx context.Context) (each []float64, sum float64, err error) {
	text, err := st.server.Metrics(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, t := range st.targets {
		n := metric(text, "keygate_target_requests_total", t.label())
		each = append(each, n)
		sum += n
	}
	return each, sum, nil
}

// ejections returns how often a target was ejected.
func (st *stage) ejections(ctx context.Context, t *target) (float64, error) {
	text, err := st.server.Metrics(ctx)
	return metric(text, "keygate_target_ejections_total", t.label()), err
}

// label returns the label of the target's metrics.
func (t *target) label() string { return fmt.Sprintf("target=%q", t.address) }

// line is what is needed of a line of the access log.
type line struct {
	Time     time.Time `json:"time"`
	Status   int       `json:"status"`
	Duration float64   `json:"duration_ms"`
	Target   string    `json:"target"`
	Attempts []struct {
		Target string `json:"target"`
	} `json:"attempts"` // if there were several, or the only one failed
}

// end returns when the request ended.
func (l *line) end() time.Time {
	return l.Time.Add(time.Duration(l.Duration * float64(time.Millisecond)))
}

// lines stops the server, so that its access log is complete, and calls f with each line.
func (st *stage) lines(f func(l *line)) error {
	st.server.Stop()
	files, err := filepath.Glob(st.log + "*") // with those that were rotated
	if err != nil {
		return err
	}
	slices.Sort(files)
	for _, name := range files {
		if err := readLines(name, f); err != nil {
			return err
		}
	}
	return nil
}

func readLines(name string, f func(l *line)) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	d := json.NewDecoder(bufio.NewReaderSize(file, 1<<20))
	for {
		var l line
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		f(&l)
	}
}

// reached returns how many requests that began at a time or later had an attempt at a target that is dead.
func (st *stage) reached(t *target, from time.Time) (n int, err error) {
	err = st.lines(func(l *line) {
		if l.Time.Before(from) {
			return
		}
		for _, a := range l.Attempts {
			if a.Target == t.address {
				n++
				return
			}
		}
	})
	return n, err
}

// served returns when the first request that began at a time or later was served by a target. It is zero if none was.
func (st *stage) served(t *target, from time.Time) (at time.Time, err error) {
	err = st.lines(func(l *line) {
		if l.Status == 200 && l.Target == t.address && !l.Time.Before(from) && (at.IsZero() || l.end().Before(at)) {
			at = l.end()
		}
	})
	return at, err
}
