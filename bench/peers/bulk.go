//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// bulkOrigin is a service that sends and receives one large body.
type bulkOrigin struct {
	address string
	file    string // the body: a sparse file of zeros
	server  *http.Server
	ended   chan struct{}
}

func newBulkOrigin(dir string, size int64) (*bulkOrigin, error) {
	b := &bulkOrigin{file: filepath.Join(dir, "bulk"), ended: make(chan struct{})}
	if err := os.WriteFile(b.file, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(b.file, size); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.address = l.Addr().String()
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(b.ended)
		_ = b.server.Serve(l) // until close
	}()
	return b, nil
}

func (b *bulkOrigin) close() {
	_ = b.server.Close() // requests in progress are not needed any more
	<-b.ended
}

// ServeHTTP responds to GET with the body, and to PUT with the number of bytes received.
func (b *bulkOrigin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		http.ServeFile(w, r, b.file)
		return
	}
	n, err := discardAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	fmt.Fprint(w, n)
}

// discardAll reads r to the end in large pieces and returns the number of bytes.
func discardAll(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, make([]byte, 256<<10))
}

// runBulk measures the transfer of one large body in each direction.
func runBulk(ctx context.Context, st *stage, p *peer) (*sample, error) {
	running, err := p.open(ctx, st, mode{origin: st.bulk.address})
	if err != nil {
		return nil, err
	}
	defer running.Stop()
	transport := &http.Transport{ReadBufferSize: 256 << 10, WriteBufferSize: 256 << 10}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport}

	// Make a first request, so that its allocations do not count as growth.
	if _, err := transferBody(ctx, c, running, http.MethodPut, http.NoBody, 0); err != nil {
		return nil, err
	}
	before, err := running.Memory()
	if err != nil {
		return nil, err
	}
	work, err := running.CPU()
	if err != nil {
		return nil, err
	}
	stopWatching := watchMemory(running)
	down, downErr := transferBody(ctx, c, running, http.MethodGet, http.NoBody, st.o.bytes)
	up, upErr := st.send(ctx, c, running)
	most := stopWatching()
	if err := errors.Join(downErr, upErr); err != nil {
		return nil, err
	}
	workAfter, err := running.CPU()
	if err != nil {
		return nil, err
	}
	after, err := running.Memory()
	if err != nil {
		return nil, err
	}
	perSecond := func(d time.Duration) float64 { return float64(st.o.bytes) / 1e6 / d.Seconds() }
	return &sample{
		download: perSecond(down), upload: perSecond(up), transfer: (workAfter - work).Seconds() / (2 * float64(st.o.bytes) / 1e9),
		growth: float64(max(most, after)-before) / 1e6, memory: float64(after) / 1e6,
	}, nil
}

// send sends the large body through the proxy.
func (st *stage) send(ctx context.Context, c *http.Client, p *proxy) (time.Duration, error) {
	f, err := os.Open(st.bulk.file)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return transferBody(ctx, c, p, http.MethodPut, f, st.o.bytes)
}

// transferBody makes one request and returns how long it took. The body of a PUT
// request, or the response to a GET request, must have size bytes.
func transferBody(ctx context.Context, c *http.Client, p *proxy, method string, body io.Reader, size int64) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.URL(bulkPath+"1"), body)
	if err != nil {
		return 0, err
	}
	if method == http.MethodPut {
		req.ContentLength = size
	}
	if p.key != "" {
		req.Header.Set("Authorization", "Bearer "+p.key)
	}
	start := time.Now()
	res, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	var moved int64
	if method == http.MethodGet {
		moved, err = discardAll(res.Body)
	} else {
		var text []byte
		if text, err = io.ReadAll(res.Body); err == nil {
			moved, err = strconv.ParseInt(string(text), 10, 64)
		}
	}
	taken := time.Since(start)
	if err == nil && (res.StatusCode != http.StatusOK || moved != size) {
		err = fmt.Errorf("status %d, and %d of %d bytes", res.StatusCode, moved, size)
	}
	if err != nil {
		return 0, fmt.Errorf("%s of a large body: %w", method, err)
	}
	return taken, nil
}

// watchMemory samples a proxy's memory every 20 ms. The returned function stops it and
// returns the maximum.
func watchMemory(p *proxy) func() int64 {
	var most int64
	stop := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if n, err := p.Memory(); err == nil {
					most = max(most, n)
				}
			case <-stop:
				return
			}
		}
	})
	return func() int64 {
		close(stop)
		watcher.Wait()
		return most
	}
}
