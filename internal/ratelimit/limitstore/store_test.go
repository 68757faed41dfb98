package limitstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/redistest"
	"github.com/keygate/keygate/internal/logpace"
	"github.com/keygate/keygate/internal/ratelimit"
)

// cutConn is a connection that, once it is set to, breaks before the next answer to a question. Answers to what the
// client asks by itself, as on a new connection, do not count: the server may not have read the question yet.
type cutConn struct {
	net.Conn
	cut *atomic.Bool
}

func (c cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if bytes.Contains(p[:n], []byte("*11\r\n:")) && c.cut.CompareAndSwap(true, false) {
		_ = c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// openStore returns a store that is not connected, with its log.
func openStore(t *testing.T, server *redistest.Server, password string, dial dialer) (*Store, *bytes.Buffer) {
	t.Helper()
	a, err := ParseAddress("redis://:" + password + "@" + server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err := New(Config{
		Address: a, Installation: func() string { return "test" }, Node: "a", Dial: dial, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, &log
}

// Guarantee: a lost answer counts as spent: a question that the store can recognize is asked again
// and charged once; any other question is not asked again.
func TestLostAnswer(t *testing.T) {
	server := redistest.Start(t)
	var cut atomic.Bool
	s, _ := openStore(t, server, "", func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return cutConn{conn, &cut}, err
	})
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for number, want := range map[int64]bool{0: false, 5: true} {
		take := perDay("{x}:"+string(rune('a'+number)), 100)
		take.Number = number
		one(t, s, 1, take)
		take.Number = number * 2
		cut.Store(true)
		q := []ratelimit.Question{{Requests: 10, Takes: []ratelimit.Take{take}}}
		err := s.Ask(t.Context(), q)
		if cut.Load() {
			t.Fatal("the connection was not cut")
		}
		if (err == nil) != want || q[0].Answered != want {
			t.Errorf("number %d: error %v, answered %v; want an answer: %v", number, err, q[0].Answered, want)
		}
		take.Number = 0
		if got := one(t, s, 0, take); used(&got.Takes[0]) != 11 {
			t.Errorf("number %d: %d are used, want 11", number, used(&got.Takes[0]))
		}
	}
}

// Guarantee: a store that may evict keys is unsuitable, and the error says what to do.
func TestEvictionIsRefused(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	s, _ := openStore(t, server, "", nil)
	err := s.Check(t.Context())
	if !errors.Is(err, ratelimit.ErrUnsuitable) || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("got the error %v, want one that asks for noeviction", err)
	}
}

// Guarantee: a store without memory does not answer, and grants nothing.
func TestStoreOutOfMemory(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	s, _ := openStore(t, server, "", nil)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := []ratelimit.Question{{Requests: 1, Takes: []ratelimit.Take{perDay("{x}:oom", 100)}}}
	if err := s.Ask(t.Context(), q); err == nil || q[0].Answered {
		t.Errorf("error %v, answered %v; want an error", err, q[0].Answered)
	}
	if err := s.Check(t.Context()); err == nil {
		t.Error("the store counts as usable although it refuses what it refused before")
	}
	c := *s.client.Load()
	if err := c.Do(t.Context(), c.B().Arbitrary("CONFIG", "SET", "maxmemory", "100mb").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("once it has memory: %v", err)
	}
}

// Guarantee: a store that must not be used, for example because it may evict keys by now, is not inspected with every
// question, but once for each connection and at an interval, and the log has only a few lines about it.
func TestFailedInspectionsAreFew(t *testing.T) {
	server := redistest.Start(t)
	s, log := openStore(t, server, "", nil)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := *s.client.Load()
	for _, step := range [][]string{{"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"}, {"CONFIG", "RESETSTAT"}} {
		if err := c.Do(t.Context(), c.B().Arbitrary(step...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	s.cfg.Now = func() time.Time { return now }
	for range 40 { // two minutes, with many connections
		now = now.Add(3 * time.Second)
		for range 5 {
			s.dials.Add(1)
			one(t, s, 1, perDay("{x}:inspected", 1000))
			one(t, s, 1, perDay("{x}:inspected", 1000))
		}
	}
	stats, err := c.Do(t.Context(), c.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	_, calls, _ := strings.Cut(parseInfo(stats)["cmdstat_info"], "calls=")
	calls, _, _ = strings.Cut(calls, ",")
	if n, _ := strconv.Atoi(calls); n == 0 || n > int(s.dials.Load()) {
		t.Errorf("%q inspections of %d connections by 400 questions, want one each at most", calls, s.dials.Load())
	}
	if lines := strings.Count(log.String(), "inspecting the limit store failed"); lines == 0 || lines > logpace.Burst+6 {
		t.Errorf("%d lines in two minutes, want %d at most", lines, logpace.Burst+6)
	}
}

// Guarantee: a server that has become a replica, and answers but refuses writes, cannot be used until it is a
// primary again.
func TestDemotedStoreIsLost(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, server, "node")
	c := *s.client.Load()
	demote := func(host, port string) {
		t.Helper()
		if err := c.Do(t.Context(), c.B().Arbitrary("REPLICAOF", host, port).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	demote("127.0.0.1", "1")
	q := []ratelimit.Question{{Requests: 1, Takes: []ratelimit.Take{perDay("{x}:demoted", 100)}}}
	if err := s.Ask(t.Context(), q); err == nil || s.Check(t.Context()) == nil {
		t.Errorf("a replica was asked (error %v) and counts as usable; want that it is lost", err)
	}
	demote("NO", "ONE")
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("as a primary again: %v", err)
	}
}

// Guarantee: a server that was restarted is noticed, counted and logged; the log and the errors never
// show the password.
func TestRestartIsNoticed(t *testing.T) {
	const password = "hush-hush"
	server := redistest.Start(t, "--requirepass", password)
	s, log := openStore(t, server, password, nil)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	one(t, s, 1, perDay("{x}:restart", 100))
	before := s.Generation()
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := s.Ask(ctx, []ratelimit.Question{{Requests: 1, Takes: []ratelimit.Take{perDay("{x}:restart", 100)}}})
	if err == nil || strings.Contains(err.Error(), password) {
		t.Errorf("without a server: the error %v", err)
	}
	server.Restart()
	for s.Check(t.Context()) != nil {
		continue
	}
	if s.Generation() != before+1 || s.Stats().Replaced != 1 {
		t.Errorf("the generation was %d and is %d", before, s.Generation())
	}
	if !strings.Contains(log.String(), "was restarted or has taken over") || strings.Contains(log.String(), password) {
		t.Errorf("the log is %q", log)
	}
	wrong, _ := openStore(t, server, "wrong-one", nil)
	if err := wrong.Check(t.Context()); err == nil || strings.Contains(err.Error(), "wrong-one") {
		t.Errorf("with a wrong password: the error %v", err)
	}
}
