package limitstore

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/keygate/keygate/internal/keygatetest/redistest"
	"github.com/keygate/keygate/internal/ratelimit"
)

// newStore returns a store that is connected to the server, for a node with the given name.
func newStore(t testing.TB, server *redistest.Server, node string) *Store {
	t.Helper()
	a, err := ParseAddress("redis://" + server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Address: a, Installation: func() string { return "test" }, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Check(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// testing.TB of rapid and of the standard library.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// one asks about one bucket.
func one(t failer, s *Store, requests int64, take ratelimit.Take) ratelimit.Question {
	t.Helper()
	return askAll(t, s, ratelimit.Question{Requests: requests, Takes: []ratelimit.Take{take}})[0]
}

func askAll(t failer, s *Store, questions ...ratelimit.Question) []ratelimit.Question {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Ask(ctx, questions); err != nil {
		t.Fatal(err)
	}
	return questions
}

// state is the field s of a bucket.
type state struct{ version, capacity, count, per, time, used, part int64 }

// readState returns the state of a bucket; ok is false if it does not exist.
func readState(t failer, s *Store, name string) (b state, ok bool) {
	t.Helper()
	c := *s.client.Load()
	text, err := c.Do(context.Background(), c.B().Hget().Key(s.prefix+name).Field("s").Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return b, false
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(text, &b.version, &b.capacity, &b.count, &b.per, &b.time, &b.used, &b.part); err != nil || strings.ContainsAny(text, ".e") {
		t.Fatalf("the state %q has other than whole numbers: %v", text, err)
	}
	return b, true
}

// writeState sets the state of a bucket, such as to move it in time.
func writeState(t failer, s *Store, name string, b state) {
	t.Helper()
	c := *s.client.Load()
	text := fmt.Sprint(b.version, " ", b.capacity, " ", b.count, " ", b.per, " ", b.time, " ", b.used, " ", b.part)
	if err := c.Do(context.Background(), c.B().Hset().Key(s.prefix+name).FieldValue().FieldValue("s", text).Build()).Error(); err != nil {
		t.Fatal(err)
	}
}

// remove removes a bucket.
func remove(t failer, s *Store, name string) {
	t.Helper()
	c := *s.client.Load()
	if err := c.Do(context.Background(), c.B().Del().Key(s.prefix+name).Build()).Error(); err != nil {
		t.Fatal(err)
	}
}

// dialer is Config.Dial.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)
