package wire

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// fixedUpstream is an upstream that responds to every complete request with the same bytes.
// It closes the connection after them unless they are a complete response.
type fixedUpstream struct {
	addr string

	mu       sync.Mutex
	response string
	working  int // connections within a message
}

func newFixedUpstream(t testing.TB) *fixedUpstream {
	t.Helper()
	back := newRawUpstream(t)
	e := &fixedUpstream{addr: back.addr}
	var running sync.WaitGroup
	done := make(chan struct{})
	var mu sync.Mutex
	var open []net.Conn
	running.Go(func() {
		for {
			select {
			case conn := <-back.conns:
				mu.Lock()
				open = append(open, conn)
				mu.Unlock()
				running.Go(func() { e.serve(conn) })
			case <-done:
				return
			}
		}
	})
	t.Cleanup(func() {
		close(done)
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return e
}

// respondWith sets the bytes of the responses from now on.
func (e *fixedUpstream) respondWith(response string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.response = response
}

// busy returns the number of connections that are within a message.
func (e *fixedUpstream) busy() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.working
}

// work adds n to the number of busy connections and returns the bytes of the response.
func (e *fixedUpstream) work(n int) (response string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.working += n
	return e.response
}

func (e *fixedUpstream) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		if _, err := in.Peek(1); err != nil {
			return
		}
		response := e.work(1)
		again := e.one(conn, in, response)
		e.work(-1)
		if !again {
			return
		}
	}
}

// one serves a request and reports whether another may follow.
func (e *fixedUpstream) one(conn net.Conn, in *bufio.Reader, response string) bool {
	req, err := http.ReadRequest(in)
	if err != nil {
		return false
	}
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return false
	}
	if _, err := io.WriteString(conn, response); err != nil {
		return false
	}
	if req.Header.Get("Upgrade") != "" {
		_, _ = io.Copy(io.Discard, in)
		return false
	}
	return isWhole(response)
}

// isWhole reports whether response is a complete message.
func isWhole(response string) bool {
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(response)), nil)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil
}
