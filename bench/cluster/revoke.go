//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/keygate/keygate/bench/stats"
	"github.com/keygate/keygate/client"
)

// afterStop is the number of keys that are revoked at the same time when a node was stopped.
const afterStop = 4

// managers is the number of keys that make the calls in turn, since each may make 100 a second.
const managers = 4

// measureRevocations measures how long the response to DELETE of a key takes.
func (st *stage) measureRevocations(ctx context.Context, f *figures, w io.Writer) (err error) {
	api, err := newCaller(ctx, st.cluster[0])
	if err != nil {
		return err
	}
	if f.quiet, err = api.revokeAll(ctx, st.o.revocations); err != nil {
		return err
	}
	fmt.Fprintf(w, "revocation without other load: p50 %v, p99 %v\n", stats.Quantile(0.5, f.quiet...), stats.Quantile(0.99, f.quiet...))
	keys, err := api.create(ctx, st.o.revocations)
	if err != nil {
		return err
	}
	err = st.underLoad(ctx, func() (err error) {
		f.busy, err = api.revoke(ctx, keys)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "revocation under load: p50 %v, p99 %v\n", stats.Quantile(0.5, f.busy...), stats.Quantile(0.99, f.busy...))
	for range st.o.stops {
		longest, err := st.revokeWithout(ctx, api, st.cluster[nodes-1])
		if err != nil {
			return err
		}
		f.cut = append(f.cut, longest)
		fmt.Fprintf(w, "the longest revocation after a node was stopped: %v\n", longest)
	}
	return nil
}

// underLoad calls do while all nodes have a load.
func (st *stage) underLoad(ctx context.Context, do func() error) error {
	loading, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	errs := make([]error, len(st.cluster))
	for i, n := range st.cluster {
		group.Go(func() {
			for loading.Err() == nil && errs[i] == nil {
				if _, err := n.load(loading, n.key, connections/nodes, time.Second); loading.Err() == nil {
					errs[i] = err
				}
			}
		})
	}
	err := do()
	stop()
	group.Wait()
	return errors.Join(append(errs, err)...)
}

// caller calls the management API of a node with several keys in turn.
type caller struct {
	clients []*client.Client
	calls   int
}

func newCaller(ctx context.Context, s *server) (*caller, error) {
	var c caller
	level := client.CreateKeyRequestLevelAccount
	for range managers {
		k, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: "manager", Scope: "admin", Level: &level})
		if err != nil {
			return nil, err
		}
		api, err := s.As(k.Secret)
		if err != nil {
			return nil, err
		}
		c.clients = append(c.clients, api)
	}
	return &c, nil
}

// next returns the client for the next call.
func (c *caller) next() *client.Client {
	c.calls++
	return c.clients[c.calls%len(c.clients)]
}

// create creates n keys and returns their identifiers.
func (c *caller) create(ctx context.Context, n int) (ids []string, err error) {
	for range n {
		k, err := c.next().CreateKey(ctx, client.CreateKeyRequest{Name: "k", Scope: "read"})
		if err != nil {
			return nil, err
		}
		ids = append(ids, k.KeyID)
	}
	return ids, nil
}

// revoke revokes keys, one after another, and returns how long each call took.
func (c *caller) revoke(ctx context.Context, ids []string) (took []time.Duration, err error) {
	for _, id := range ids {
		api, start := c.next(), time.Now()
		if _, err := api.RevokeKey(ctx, id); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

// revokeAll creates n keys and revokes them.
func (c *caller) revokeAll(ctx context.Context, n int) ([]time.Duration, error) {
	ids, err := c.create(ctx, n)
	if err != nil {
		return nil, err
	}
	return c.revoke(ctx, ids)
}

// revokeWithout stops a node, revokes keys at the same time through another, and returns the longest time
// that a call took. Then the node goes on, and is ready again.
func (st *stage) revokeWithout(ctx context.Context, api *caller, n *server) (longest time.Duration, err error) {
	ids, err := api.create(ctx, afterStop)
	if err != nil {
		return 0, err
	}
	if err := syscall.Kill(n.ID(), syscall.SIGSTOP); err != nil {
		return 0, err
	}
	took, errs := make([]time.Duration, len(ids)), make([]error, len(ids))
	var group sync.WaitGroup
	for i, id := range ids {
		one := api.next()
		group.Go(func() {
			start := time.Now()
			_, errs[i] = one.RevokeKey(ctx, id)
			took[i] = time.Since(start)
		})
	}
	group.Wait()
	errs = append(errs, syscall.Kill(n.ID(), syscall.SIGCONT))
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	errs = append(errs, n.Await(waiting, n.Ready))
	return stats.Quantile(1, took...), errors.Join(errs...)
}
