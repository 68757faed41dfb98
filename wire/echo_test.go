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

// echo is an upstream that gives the same bytes to every whole request, and
// closes if they are no whole answer.
type echo struct {
	addr string

	mu      sync.Mutex
	answer  string
	working int
}

func newEcho(t testing.TB) *echo {
	t.Helper()
	back := newBackstage(t)
	e := &echo{addr: back.addr}
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

// script sets what is answered from now on.
func (e *echo) script(answer string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = answer
}

// busy returns how many connections are within a message.
func (e *echo) busy() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.working
}

func (e *echo) work(n int) (answer string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.working += n
	return e.answer
}

func (e *echo) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		if _, err := in.Peek(1); err != nil {
			return
		}
		answer := e.work(1)
		again := e.one(conn, in, answer)
		e.work(-1)
		if !again {
			return
		}
	}
}

// one serves a request and reports whether another may follow.
func (e *echo) one(conn net.Conn, in *bufio.Reader, answer string) bool {
	req, err := http.ReadRequest(in)
	if err != nil {
		return false
	}
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return false
	}
	if _, err := io.WriteString(conn, answer); err != nil {
		return false
	}
	if req.Header.Get("Upgrade") != "" {
		_, _ = io.Copy(io.Discard, in)
		return false
	}
	return isWhole(answer)
}

// isWhole reports whether answer is a whole message.
func isWhole(answer string) bool {
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil
}
