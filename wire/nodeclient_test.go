package wire

import (
	"bufio"
	"bytes"
	"context"
	"os/exec"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// nodeClient returns the arguments with which Node.js plays a part as a client of a server.
func nodeClient(s *testServer, part string) []string {
	args := []string{"testdata/http2client.js", part, s.url(""), s.key}
	if s.cert != "" {
		args = append(args, s.cert)
	}
	return args
}

// Guarantee: the HTTP/2 client of Node.js works with the gateway: many requests of one session at
// the same time, responses before the end of the request, resets, readers that stop, trailers.
func TestNodeHTTP2(t *testing.T) {
	t.Parallel()
	http2Ways(t, func(t *testing.T, s *testServer, up *service) {
		for _, part := range []string{"requests in parallel", "uploads in parallel", "Expect", "trailers", "early response", "reset in mid-response", "slow reader beside others"} {
			t.Run(part, func(t *testing.T) {
				run(t, "node", nodeClient(s, part)...)
				if part == "reset in mid-response" {
					for range 5 {
						<-up.ended
					}
				}
			})
		}
	})
}

// Guarantee: Node.js opens a WebSocket by an extended CONNECT, which the gateway announces.
func TestNodeWebSocket(t *testing.T) {
	t.Parallel()
	up := startService(t, "http")
	for name, overTLS := range map[string]bool{"over TLS": true, "in clear": false} {
		t.Run(name, func(t *testing.T) {
			run(t, "node", nodeClient(startServer(t, up.url, overTLS), "WebSocket")...)
		})
	}
}

// Guarantee: when the server stops, Node.js receives GOAWAY and the rest of the responses under
// way, and the connection ends.
func TestNodeDrain(t *testing.T) {
	t.Parallel()
	http2Ways(t, func(t *testing.T, s *testServer, up *service) {
		ctx, cancel := context.WithTimeout(t.Context(), awaittest.Timeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, "node", nodeClient(s, "drain")...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		printed := bufio.NewScanner(out)
		var stopping sync.WaitGroup
		for printed.Scan() {
			switch printed.Text() {
			case "under way":
				stopping.Go(s.Stop)
			case "goaway":
				for range 5 {
					up.release <- struct{}{}
				}
			}
		}
		stopping.Wait()
		if err := cmd.Wait(); err != nil {
			t.Errorf("node: %v\n%s", err, stderr.String())
		}
	})
}
