//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/http2"
)

// callPath is the path of the gRPC method that the calls are for.
const callPath = "/bench.Echo/Call"

// The sizes of the messages of a call, in bytes.
const (
	askedBytes   = 40
	repliedBytes = 100
)

// callOrigin is a gRPC upstream over cleartext HTTP/2 that replies at once. It runs in this process,
// and takes so little time that the proxies are the bottleneck.
type callOrigin struct {
	address  string // host:port; "" before open
	listener net.Listener
	served   atomic.Int64
}

// open starts the upstream, unless it is running, and returns its address.
func (o *callOrigin) open() (string, error) {
	if o.address != "" {
		return o.address, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go o.serve(c)
		}
	}()
	o.listener, o.address = l, l.Addr().String()
	return o.address, nil
}

func (o *callOrigin) close() {
	if o.listener != nil {
		_ = o.listener.Close()
	}
}

// serve serves the calls of a connection until it ends.
func (o *callOrigin) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	var (
		proto   = http2.NewConn(http2.Config{Role: http2.Server})
		ev      http2.Event
		request http2.Request
		in      = make([]byte, 32<<10)
		out     []byte
		bytesIn = map[uint32]int{}
		start   = time.Now()
	)
	for {
		if out = proto.Take(out[:0]); len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return
			}
		}
		n, err := c.Read(in)
		if err != nil || proto.Err() != nil {
			return
		}
		proto.Feed(int64(time.Since(start)), in[:n])
		for proto.Next(&ev) {
			switch ev.Kind {
			case http2.Head:
				if proto.ReadRequest(&request) != nil || string(request.Target.Of(request.Text)) != callPath {
					proto.Reset(ev.Stream, http2.ProtocolError)
					proto.Done(ev.Stream)
				}
			case http2.Data:
				bytesIn[ev.Stream] += len(ev.Data)
				proto.Consumed(ev.Stream, len(ev.Data))
				if ev.End {
					o.reply(proto, ev.Stream, bytesIn[ev.Stream])
					delete(bytesIn, ev.Stream)
				}
			case http2.Reset:
				delete(bytesIn, ev.Stream)
				proto.Done(ev.Stream)
			}
		}
	}
}

// reply replies to a call whose message has n bytes, framing included.
func (o *callOrigin) reply(proto *http2.Conn, stream uint32, n int) {
	status := "0"
	if n != len(message(askedBytes)) {
		status = "3"
	}
	if proto.BeginHead(stream) {
		proto.FieldString(":status", "200", false)
		proto.FieldString("content-type", "application/grpc", false)
		proto.EndHead(false)
		proto.Data(stream, reply, false)
		proto.BeginHead(stream)
		proto.FieldString("grpc-status", status, false)
		proto.EndHead(true)
		o.served.Add(1)
	}
	proto.Done(stream)
}

var reply = message(repliedBytes) //nolint:gochecknoglobals // a constant; Go has none of this type

// message returns a message of n bytes in gRPC's framing.
func message(n int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)), bytes.Repeat([]byte{'m'}, n)...)
}

// check makes a call and returns an error if the reply is wrong, or if a proxy that checks keys
// serves a call without one.
func (o *callOrigin) check(ctx context.Context, roots *x509.CertPool, base, key string, checks bool) error {
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	status, body, err := o.call(ctx, transport, base, key)
	if err != nil {
		return err
	}
	if status != "0" || !bytes.Equal(body, message(repliedBytes)) {
		return fmt.Errorf("%s: grpc-status %q with %d bytes; want 0 and the reply of the origin", callPath, status, len(body))
	}
	if !checks {
		return nil
	}
	if status, _, err = o.call(ctx, transport, base, ""); err != nil {
		return err
	}
	if status != "16" && status != "HTTP 401" {
		return fmt.Errorf("%s without a key: %q; want grpc-status 16 or HTTP 401", callPath, status)
	}
	return nil
}

// call makes a call. status is its grpc-status, or "HTTP" and a status other than 200.
func (o *callOrigin) call(ctx context.Context, transport http.RoundTripper, base, key string) (status string, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+callPath, bytes.NewReader(message(askedBytes)))
	if err != nil {
		return "", nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return "", nil, err
	}
	defer res.Body.Close()
	if body, err = io.ReadAll(res.Body); err != nil {
		return "", nil, err
	}
	switch {
	case res.StatusCode != http.StatusOK:
		return fmt.Sprintf("HTTP %d", res.StatusCode), body, nil
	case res.Trailer.Get("Grpc-Status") != "":
		return res.Trailer.Get("Grpc-Status"), body, nil
	default:
		return res.Header.Get("Grpc-Status"), body, nil
	}
}

// grpcLoad returns the runs of a scenario with unary calls over TLS.
func grpcLoad(connections, streams int) func(context.Context, *stage, *peer) (*sample, error) {
	return func(ctx context.Context, st *stage, p *peer) (*sample, error) {
		asked := filepath.Join(st.dir, "call.bin")
		if err := os.WriteFile(asked, message(askedBytes), 0o600); err != nil {
			return nil, err
		}
		l := h2load(callPath, connections, streams, "-d", asked, "-H", "content-type: application/grpc", "-H", "te: trailers")
		return runLoad(ctx, st, p, mode{secure: true, grpc: true}, counted(l))
	}
}

// counted checks that the origin has served every call of a load, because h2load does not check
// grpc-status.
func counted(l load) load {
	return func(ctx context.Context, st *stage, p *proxy, d time.Duration) (*loadResult, error) {
		before := st.calls.served.Load()
		seen, err := l(ctx, st, p, d)
		if err != nil {
			return nil, err
		}
		if served := st.calls.served.Load() - before; served < int64(seen.requests) {
			return nil, fmt.Errorf("not all calls reached the origin: %d of %d", served, seen.requests)
		}
		return seen, nil
	}
}
