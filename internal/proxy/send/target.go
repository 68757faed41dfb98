package send

import (
	"sync/atomic"

	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// Target is a target of a gateway with everything that requests to it need, computed once. It is immutable.
type Target struct {
	of    *snapshot.Target // what the rest was made from
	pool  *upstream.H1Pool // for the schemes http and https, otherwise nil
	calls *upstream.H2Pool // for the schemes h2c and https, otherwise nil
	path  string           // of the URL, without its final slash
	self  origin           // by which the upstream knows itself; none if it gets the client's Host
}

// newTarget returns the Target for of. The error is the response to the client.
func newTarget(pools *upstream.Pools, of *snapshot.Target) (*Target, error) {
	t := &Target{of: of, path: upstream.Path(of.Base)}
	if of.Host != "" {
		t.self = originOf(upstream.Scheme(of.Base), of.Host)
	}
	var err error
	if of.Base.Scheme == "http" {
		t.pool, err = pools.Plain(proxy.OriginOf(of))
	} else {
		t.calls, err = pools.Multiplexed(proxy.OriginOf(of))
	}
	if err != nil {
		return nil, proxy.Unreachable(err)
	}
	if t.calls != nil {
		t.pool = t.calls.HTTP1()
	}
	return t, nil
}

// Affinity is what a client's connection keeps from one request to the next: targets that it has
// used, with the connection to each that was used last, and the connection that is bound to the client's.
// Its zero value has none. It is safe for concurrent use.
type Affinity struct {
	Bond
	targets [keptTargets]atomic.Pointer[Target]
	last    [keptTargets]atomic.Pointer[upstream.H1Conn]
}

// keptTargets is how many targets an Affinity keeps.
const keptTargets = 4

// Rest forgets the targets and the connections that were used last. An idle client would keep settings of the gateway in
// memory that it does not have any more.
func (a *Affinity) Rest() {
	for i := range a.targets {
		a.targets[i].Store(nil)
		a.last[i].Store(nil)
	}
}

// lastOf returns where the connection to a target is kept that was used last.
func (a *Affinity) lastOf(t *Target) *atomic.Pointer[upstream.H1Conn] {
	return &a.last[t.of.Index%keptTargets]
}

// targetOf returns the Target for of. The error is the response to the client.
func (a *Affinity) targetOf(pools *upstream.Pools, of *snapshot.Target) (*Target, error) {
	kept := &a.targets[of.Index%keptTargets]
	if t := kept.Load(); t != nil && t.of == of {
		return t, nil
	}
	t, err := newTarget(pools, of)
	if err == nil {
		kept.Store(t)
	}
	return t, err
}
