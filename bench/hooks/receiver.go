//go:build linux

package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// arrival is the first arrival of an event.
type arrival struct {
	at    time.Time
	delay time.Duration // since the event's created_at
}

// receiver is a webhook receiver that records when each event first arrived.
type receiver struct {
	url    string
	server *http.Server

	mu       sync.Mutex
	arrivals map[string]arrival // by event id
	more     chan struct{}
}

func newReceiver() (*receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + l.Addr().String(), arrivals: map[string]arrival{}, more: make(chan struct{}, 1)}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.server.Serve(l) }()
	return r, nil
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	now := time.Now()
	body, err := io.ReadAll(req.Body)
	var e struct {
		ID        string    `json:"id"`
		CreatedAt time.Time `json:"created_at"`
	}
	if err != nil || json.Unmarshal(body, &e) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	if _, there := r.arrivals[e.ID]; !there {
		r.arrivals[e.ID] = arrival{now, now.Sub(e.CreatedAt)}
	}
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
	w.WriteHeader(http.StatusNoContent)
}

// await waits until n events have arrived or ctx ends. It returns the arrivals since
// the last call.
func (r *receiver) await(ctx context.Context, n int) map[string]arrival {
	for {
		r.mu.Lock()
		count := len(r.arrivals)
		r.mu.Unlock()
		if count >= n {
			break
		}
		select {
		case <-r.more:
			continue
		case <-ctx.Done():
		}
		break
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.arrivals
	r.arrivals = map[string]arrival{}
	return all
}

func (r *receiver) close() { _ = r.server.Close() }

// hang accepts connections at the returned URL and never responds.
func hang() (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	var (
		mu    sync.Mutex
		conns []net.Conn
	)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	}()
	return "http://" + l.Addr().String(), func() {
		_ = l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			_ = c.Close()
		}
	}, nil
}
