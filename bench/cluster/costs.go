//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/bench/wrk"
)

// connections is the number of the client's connections to one server.
const connections = 64

// costs are what requests cost a node, beside the same binary alone.
type costs struct {
	alone, node         []float64 // CPU µs for each request, by round
	aloneRate, nodeRate []float64 // requests a second, by round
	ratios              []float64 // node ÷ alone, by round
	below, over         questions
}

// questions are what a node asked the limit store a second.
type questions struct {
	all       float64
	perBucket float64 // of the busy ones
}

// busyBuckets are the buckets in the limit store that every admitted request charges: the key's, and two of the
// route. The gateway's limit is the default one, which is divided.
const busyBuckets = 3

// measureCosts measures the server alone and one node in turn, so that a noisy minute affects both.
func (st *stage) measureCosts(ctx context.Context, c *costs, w io.Writer) error {
	node := st.cluster[0]
	for _, s := range []*server{st.alone, node} {
		if _, err := s.load(ctx, s.key, connections, time.Second); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	for round := range st.o.rounds {
		order := []*server{st.alone, node}
		if round%2 == 1 {
			order[0], order[1] = order[1], order[0]
		}
		var cpu, rate [2]float64 // alone, node
		for _, s := range order {
			i := 0
			if s == node {
				i = 1
			}
			var err error
			if cpu[i], rate[i], err = s.cost(ctx, st.o.duration); err != nil {
				return err
			}
		}
		c.alone, c.node = append(c.alone, cpu[0]), append(c.node, cpu[1])
		c.aloneRate, c.nodeRate = append(c.aloneRate, rate[0]), append(c.nodeRate, rate[1])
		c.ratios = append(c.ratios, cpu[1]/cpu[0])
		fmt.Fprintf(w, "round %d: alone %.1f µs, %.0f/s; node %.1f µs, %.0f/s; ratio %.3f\n", round+1, cpu[0], rate[0], cpu[1], rate[1], cpu[1]/cpu[0])
	}
	var err error
	if c.below, err = st.ask(ctx, node, node.key); err != nil {
		return err
	}
	if c.over, err = st.ask(ctx, node, node.over); err != nil {
		return err
	}
	fmt.Fprintf(w, "questions to the limit store: %+v below the limits, %+v over that of the key\n", c.below, c.over)
	return st.profile(ctx, node)
}

// load sends requests with a key. It returns an error if a request fails for another reason than the key's limit.
func (s *server) load(ctx context.Context, key string, connections int, d time.Duration) (*wrk.Result, error) {
	r, err := wrk.Run(ctx, wrk.Config{URL: "http://" + s.Gateway + "/json/1", Key: key, Connections: connections, Duration: d, Dir: s.dir})
	if err == nil && r.Failures > 0 && key != s.over {
		return nil, fmt.Errorf("%d of %d requests failed", r.Failures, r.Requests)
	}
	return r, err
}

// cost returns the CPU µs of a request, and the requests a second.
func (s *server) cost(ctx context.Context, d time.Duration) (cpu, rate float64, err error) {
	before, err := s.CPU()
	if err != nil {
		return 0, 0, err
	}
	r, err := s.load(ctx, s.key, connections, d)
	if err != nil {
		return 0, 0, err
	}
	after, err := s.CPU()
	return float64((after - before).Nanoseconds()) / 1e3 / float64(r.Requests), float64(r.Requests) / r.Elapsed.Seconds(), err
}

// ask loads a node and counts the scripts that the limit store ran meanwhile.
func (st *stage) ask(ctx context.Context, n *server, key string) (q questions, err error) {
	before, err := st.scripts(ctx)
	if err != nil {
		return q, err
	}
	r, err := n.load(ctx, key, connections, st.o.duration)
	if err != nil {
		return q, err
	}
	after, err := st.scripts(ctx)
	q.all = float64(after-before) / r.Elapsed.Seconds()
	q.perBucket = q.all / busyBuckets
	return q, err
}

// scripts returns how many scripts the limit store has run.
func (st *stage) scripts(ctx context.Context) (calls int64, err error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", st.limits)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(c, "INFO commandstats\r\nQUIT\r\n"); err != nil {
		return 0, err
	}
	found := false
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "cmdstat_evalsha:calls=")
		if !ok {
			continue
		}
		text, _, _ = strings.Cut(text, ",")
		if calls, err = strconv.ParseInt(text, 10, 64); err != nil {
			return 0, err
		}
		found = true
	}
	if !found {
		return 0, errors.Join(errors.New("the limit store has run no script"), lines.Err())
	}
	return calls, nil
}

// profile writes a CPU profile of the node under load, if one was requested.
func (st *stage) profile(ctx context.Context, n *server) error {
	if st.o.profile == "" {
		return nil
	}
	const seconds = 5
	loaded := make(chan error, 1)
	go func() { // ends with the load
		_, err := n.load(ctx, n.key, connections, (seconds+1)*time.Second)
		loaded <- err
	}()
	text, err := n.CPUProfile(ctx, seconds)
	return errors.Join(err, <-loaded, os.WriteFile(st.o.profile, text, 0o600))
}
