//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/internal/http2"
)

const (
	// perAddress is the number of connections from one client address, which gateways
	// limit.
	perAddress = 3000
	// idleUnit is the number of connections that the figures are for.
	idleUnit = 10_000
	// dialers is the number of connections that are opened, or make a request, at the same time.
	dialers = 4
	// idleTime is how long the connections are idle before the memory is measured, so that a proxy
	// can free what it keeps for busy connections.
	idleTime = 2 * time.Second
	// requestTime bounds a request on such a connection, its handshake included.
	requestTime = 10 * time.Second
)

// idleClient is a connection that makes a request now and then.
type idleClient interface {
	net.Conn
	// get makes a request and checks its response.
	get(p *proxy) error
}

// openIdle makes an idleClient of a connection to a proxy. It performs the TLS handshake, if
// there is one.
type openIdle func(ctx context.Context, st *stage, c net.Conn) (idleClient, error)

// idleLoad returns the runs of a scenario with idle connections. They measure how much memory
// the connections add to a proxy, for each 10,000 of them. Each has made one request. A proxy
// with garbage collection collects before both measurements.
func idleLoad(secure bool, open openIdle) func(context.Context, *stage, *peer) (*sample, error) {
	return func(ctx context.Context, st *stage, p *peer) (*sample, error) {
		if st.idle == 0 {
			return nil, fmt.Errorf("the limit of %d open files allows no idle connections", st.files)
		}
		running, err := p.open(ctx, st, mode{secure: secure, collect: true})
		if err != nil {
			return nil, err
		}
		defer running.Stop()
		before, beforeHeap, err := memoryAtRest(ctx, running)
		if err != nil {
			return nil, err
		}
		idle, err := connectAll(ctx, st, running, open)
		defer func() {
			for _, c := range idle {
				_ = c.Close()
			}
		}()
		if err != nil {
			return nil, err
		}
		select {
		case <-time.After(idleTime):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		after, afterHeap, err := memoryAtRest(ctx, running)
		if err != nil {
			return nil, err
		}
		if err := stayOpen(running, idle); err != nil {
			return nil, err
		}
		// In MB for each 10,000 connections.
		added := func(bytes int64) float64 { return float64(bytes) / 1e6 * idleUnit / float64(st.idle) }
		found := &sample{memory: float64(after) / 1e6, resident: added(after - before), live: math.NaN()}
		found[growth] = found[resident] - added(afterHeap.Free-beforeHeap.Free)
		if running.collect != nil {
			found[live] = added(afterHeap.Live + afterHeap.Stacks - beforeHeap.Live - beforeHeap.Stacks)
		}
		return found, nil
	}
}

// idleWithin returns how many idle connections a proxy may have: n, or fewer if the limit of open
// files of a process requires that. Keygate leaves a little less than half of them to clients.
func idleWithin(n int, files uint64) int { return min(n, int(files-min(files, 1000))*2/5) }

// memoryAtRest returns a proxy's memory, after a garbage collection if it has one.
func memoryAtRest(ctx context.Context, p *proxy) (bytes int64, heap keygate.Heap, err error) {
	if p.collect != nil {
		if heap, err = p.collect(ctx); err != nil {
			return 0, heap, err
		}
	}
	bytes, err = p.Memory()
	return bytes, heap, err
}

// connectAll opens the idle connections and makes one request on each. Even with an error, it
// returns the connections that it has opened.
func connectAll(ctx context.Context, st *stage, p *proxy, open openIdle) ([]idleClient, error) {
	all := make([]idleClient, st.idle)
	err := inParallel(len(all), func(i int) (err error) {
		all[i], err = connect(ctx, st, p, open, i/perAddress)
		return err
	})
	return slices.DeleteFunc(all, func(c idleClient) bool { return c == nil }), err
}

// stayOpen makes another request on each connection, because a connection that the proxy has closed
// would use no memory.
func stayOpen(p *proxy, all []idleClient) error {
	return inParallel(len(all), func(i int) error {
		if err := all[i].get(p); err != nil {
			return fmt.Errorf("it did not stay open: %w", err)
		}
		return nil
	})
}

// inParallel calls do with each number below n, several at the same time, until all are done
// or one has failed.
func inParallel(n int, do func(i int) error) error {
	var next, failed atomic.Int64
	var errs [dialers]error
	var all sync.WaitGroup
	for worker := range dialers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failed.Load() == 0; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					errs[worker] = fmt.Errorf("connection %d: %w", i+1, err)
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs[:]...)
}

// connect opens a connection from the loopback address 127.0.0.(from+1) and makes one
// request on it.
func connect(ctx context.Context, st *stage, p *proxy, open openIdle, from int) (idleClient, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(from+1))}}
	nc, err := d.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, err
	}
	c, err := open(ctx, st, nc)
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	if err := c.get(p); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// idleHTTP1 is an HTTP/1.1 client.
type idleHTTP1 struct{ net.Conn }

func openPlain(_ context.Context, _ *stage, c net.Conn) (idleClient, error) { return idleHTTP1{c}, nil }

func openTLS(ctx context.Context, st *stage, c net.Conn) (idleClient, error) {
	c, err := handshake(ctx, st, c, "http/1.1")
	return idleHTTP1{c}, err
}

// handshake performs the TLS handshake of a client that speaks one protocol.
func handshake(ctx context.Context, st *stage, c net.Conn, protocol string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	t := tls.Client(c, &tls.Config{RootCAs: st.pair.roots, ServerName: "localhost", NextProtos: []string{protocol}, MinVersion: tls.VersionTLS13})
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if got := t.ConnectionState().NegotiatedProtocol; got != protocol {
		return nil, fmt.Errorf("the proxy chose the protocol %q, not %q", got, protocol)
	}
	return t, nil
}

func (c idleHTTP1) get(p *proxy) error {
	if err := c.SetDeadline(time.Now().Add(requestTime)); err != nil {
		return err
	}
	text := "GET " + jsonPath + "1 HTTP/1.1\r\nHost: " + p.address + "\r\n"
	if p.key != "" {
		text += "Authorization: Bearer " + p.key + "\r\n"
	}
	if _, err := io.WriteString(c, text+"\r\n"); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	return nil
}

// idleHTTP2 is an HTTP/2 client.
type idleHTTP2 struct {
	net.Conn
	proto *http2.Conn
}

func openHTTP2(ctx context.Context, st *stage, c net.Conn) (idleClient, error) {
	c, err := handshake(ctx, st, c, "h2")
	return &idleHTTP2{c, http2.NewConn(http2.Config{Role: http2.Client})}, err
}

func (c *idleHTTP2) get(p *proxy) error {
	if err := c.SetDeadline(time.Now().Add(requestTime)); err != nil {
		return err
	}
	id, ok := c.proto.Open(false)
	if !ok {
		return errors.New("the proxy takes no more requests")
	}
	c.proto.FieldString(":method", "GET", false)
	c.proto.FieldString(":scheme", "https", false)
	c.proto.FieldString(":authority", p.address, false)
	c.proto.FieldString(":path", jsonPath+"1", false)
	if p.key != "" {
		c.proto.FieldString("authorization", "Bearer "+p.key, false)
	}
	c.proto.EndHead(true)
	defer c.proto.Done(id)
	return c.response()
}

// response sends the pending output, and reads until the response has ended.
func (c *idleHTTP2) response() error {
	var (
		ev       http2.Event
		response http2.Response
		in       [4 << 10]byte
	)
	for {
		if out := c.proto.Take(nil); len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return err
			}
		}
		if err := c.proto.Err(); err != nil {
			return err
		}
		n, err := c.Read(in[:])
		if err != nil {
			return err
		}
		c.proto.Feed(0, in[:n])
		for c.proto.Next(&ev) {
			switch ev.Kind {
			case http2.Head:
				if err := c.proto.ReadResponse(&response); err != nil {
					return err
				}
				if response.Status != http.StatusOK {
					return fmt.Errorf("status %d", response.Status)
				}
			case http2.Data:
				c.proto.Consumed(ev.Stream, len(ev.Data))
				if ev.End {
					return nil
				}
			case http2.Reset:
				return fmt.Errorf("the proxy has reset the stream: %v", ev.Code)
			}
		}
	}
}
