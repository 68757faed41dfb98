//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/client"
)

// delayer is a proxy that passes everything on later, each way after half of a round trip.
type delayer struct {
	to       string
	listener net.Listener
	trip     atomic.Int64 // a time.Duration
	group    sync.WaitGroup
	mu       sync.Mutex
	open     []net.Conn
}

// openDelayer starts a delayer on the loopback interface, without delay at first.
func openDelayer(ctx context.Context, to string) (*delayer, error) {
	addresses, err := keygate.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	d := &delayer{to: to}
	if d.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", addresses[0]); err != nil {
		return nil, err
	}
	d.group.Go(d.accept)
	return d, nil
}

func (d *delayer) accept() {
	for {
		from, err := d.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", d.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		d.mu.Lock()
		d.open = append(d.open, from, to)
		d.mu.Unlock()
		d.group.Go(func() { d.pass(to, from) })
		d.group.Go(func() { d.pass(from, to) })
	}
}

// piece is what was read at a time.
type piece struct {
	at   time.Time
	text []byte
}

// pass copies from one connection to another, and closes both at the end.
func (d *delayer) pass(to, from net.Conn) {
	pieces := make(chan piece, 1024)
	d.group.Go(func() {
		defer close(pieces)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			pieces <- piece{time.Now(), b[:n]}
		}
	})
	for p := range pieces {
		<-time.After(time.Until(p.at.Add(time.Duration(d.trip.Load()) / 2)))
		_, _ = to.Write(p.text) // if that fails, the other side ends
	}
	_, _ = to.Close(), from.Close()
}

func (d *delayer) close() {
	_ = d.listener.Close()
	d.mu.Lock()
	for _, c := range d.open {
		_ = c.Close()
	}
	d.mu.Unlock()
	d.group.Wait()
}

// slowFigures are the changes a second that nodes make while the last node is far from the database.
type slowFigures struct {
	alone, beside float64 // of the other nodes, while the slow node makes no changes, and while it does
	slow          float64 // of the slow one then
}

// callersOfNode is how many changes a node makes at a time.
const callersOfNode = 4

// measureSlow measures changes that do not wait for other nodes, since the others would wait for the slow node.
func (st *stage) measureSlow(ctx context.Context, f *slowFigures, w io.Writer) error {
	var callers [nodes][callersOfNode]*client.Client
	for i, n := range st.cluster {
		for k := range callers[i] {
			api, err := n.manager(ctx)
			if err != nil {
				return err
			}
			callers[i][k] = api
		}
	}
	st.delay.trip.Store(int64(st.o.slow))
	defer st.delay.trip.Store(0)
	made, err := changes(ctx, callers[:nodes-1])
	if err != nil {
		return err
	}
	f.alone = made[0] + made[1]
	if made, err = changes(ctx, callers[:]); err != nil {
		return err
	}
	f.beside, f.slow = made[0]+made[1], made[2]
	fmt.Fprintf(w, "changes a second with one node %v from the database: %.1f while it makes none, %.1f while it makes %.1f\n", st.o.slow, f.alone, f.beside, f.slow)
	return nil
}

// manager returns a client with a key of its own, since each may make 100 calls a second.
func (s *server) manager(ctx context.Context) (*client.Client, error) {
	level := client.CreateKeyRequestLevelAccount
	k, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: "manager", Scope: "admin", Level: &level})
	if err != nil {
		return nil, err
	}
	return s.Through(withoutWait{http.DefaultTransport}, k.Secret)
}

// changes lets all callers create keys, each one after another, and returns the keys a second of each node.
func changes(ctx context.Context, callers [][callersOfNode]*client.Client) ([]float64, error) {
	const during = 10 * time.Second
	made := make([]atomic.Int64, len(callers))
	errs := make(chan error, len(callers)*callersOfNode)
	end := time.Now().Add(during)
	for i := range callers {
		for _, api := range callers[i] {
			go func() { // it sends its error
				for time.Now().Before(end) {
					if _, err := api.CreateKey(ctx, client.CreateKeyRequest{Name: "k", Scope: "read"}); err != nil {
						errs <- err
						return
					}
					if time.Now().Before(end) {
						made[i].Add(1)
					}
				}
				errs <- nil
			}()
		}
	}
	var err error
	for range cap(errs) {
		err = errors.Join(err, <-errs)
	}
	rates := make([]float64, len(made))
	for i := range made {
		rates[i] = float64(made[i].Load()) / during.Seconds()
	}
	return rates, err
}

// withoutWait adds wait=false to every call.
type withoutWait struct{ http.RoundTripper }

func (t withoutWait) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.RawQuery = "wait=false"
	return t.RoundTripper.RoundTrip(r)
}
