package limitstore_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/ratelimit/limitstore"
)

const helloReply = "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"

// hostile is a server that greets like Redis and then sends the same to everything, again and again if endless is true.
func hostile(t *testing.T, reply string, endless bool) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				in := bufio.NewScanner(c)
				for in.Scan() {
					line := strings.ToUpper(in.Text())
					switch {
					case line == "HELLO":
						_, _ = io.WriteString(c, helloReply)
					case line == "SETINFO":
						_, _ = io.WriteString(c, "+OK\r\n")
					case line == "EVALSHA" || line == "INFO" || line == "CONFIG":
						for again := true; again; again = endless {
							if _, err := io.WriteString(c, reply); err != nil {
								return
							}
						}
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// Guarantee: whatever a server sends, the client returns an error, and takes no memory for lengths that a server only names.
func TestHostileServers(t *testing.T) {
	for name, c := range map[string]struct {
		reply   string
		endless bool
	}{
		"a string of 2⁶³ bytes":     {"$9223372036854775800\r\n", false},
		"a string of 4 GiB":         {"$4294967296\r\nabc", false},
		"a string of −5 bytes":      {"$-5\r\n\r\n", false},
		"a streamed string":         {"$?\r\n;4\r\nabcd\r\n", true},
		"an array of 10⁹":           {"*1000000000\r\n", false},
		"an array of −7":            {"*-7\r\n", false},
		"a map of 2⁶²":              {"%4611686018427387904\r\n", false},
		"a push of 10⁹":             {">1000000000\r\n", false},
		"arrays in arrays":          {strings.Repeat("*1\r\n", 1000), true},
		"arrays of arrays":          {strings.Repeat("*65536\r\n", 10) + strings.Repeat(":1\r\n", 1000), true},
		"a line without an end":     {"+" + strings.Repeat("a", 1<<20), true},
		"a string that is an array": {"$1000\r\n*1000000000\r\n", true},
		"something else":            {"HTTP/1.1 400 Bad Request\r\n\r\n", false},
		"nothing":                   {"\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := limitstore.ParseAddress("redis://" + hostile(t, c.reply, c.endless))
			if err != nil {
				t.Fatal(err)
			}
			s, err := limitstore.New(limitstore.Config{Address: a, Installation: func() string { return "i" }, Node: "n"})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			take := ratelimit.Take{Name: "{a}:b", Capacity: 1, Count: 1, Per: 1_000_000, Version: 1, Left: -1}
			if err := s.Ask(ctx, []ratelimit.Question{{Requests: 1, Takes: []ratelimit.Take{take}}}); err == nil {
				t.Error("the answer was taken")
			}
		})
	}
}
