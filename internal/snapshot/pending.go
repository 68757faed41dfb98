package snapshot

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
)

// pendingGateways holds what the change log says about gateways and is not in force yet. It is
// safe for concurrent use.
type pendingGateways struct {
	mu   sync.Mutex
	byID map[string]*pendingGateway
}

// pendingGateway is the changes of one gateway. Whoever holds turn puts them in force, so the
// changes of one gateway come into force in the order of the change log, and changes of another
// gateway do not wait for them.
type pendingGateway struct {
	turn chan struct{}

	// The fields below are guarded by pendingGateways.mu.
	todo  gatewayTodo
	marks int64 // number of changes so far
	done  int64 // number of changes that are in force, or that cannot be put in force
	err   error // why the changes up to done cannot be in force, or nil
	users int   // number of goroutines that hold turn or wait for it
}

// gatewayTodo says which parts of a gateway to read again: its settings in any case.
type gatewayTodo struct {
	whole  bool                // the route table
	routes map[string]struct{} // these routes; not used if whole is set
	after  int64               // the last change that is included here
}

// maxTodoRoutes is the number of single routes at which the whole table is read.
const maxTodoRoutes = 1000

func (t *gatewayTodo) add(c Change) {
	t.after = max(t.after, c.Seq)
	_, routeID := c.Gateway()
	switch {
	case c.Kind == GatewayChange:
		t.whole = true
	case c.Kind == RouteChange && !t.whole:
		if t.routes == nil {
			t.routes = map[string]struct{}{}
		}
		t.routes[routeID] = struct{}{}
		t.whole = len(t.routes) > maxTodoRoutes
	}
	if t.whole {
		t.routes = nil
	}
}

// mark adds a change of a gateway.
func (q *pendingGateways) mark(c Change) {
	gatewayID, _ := c.Gateway()
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.byID[gatewayID]
	if p == nil {
		p = &pendingGateway{turn: make(chan struct{}, 1)}
		q.byID[gatewayID] = p
	}
	p.todo.add(c)
	p.marks++
}

// ids returns the gateways with changes that are not in force, in a fixed order.
func (q *pendingGateways) ids() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(maps.Keys(q.byID))
}

// enter returns the changes of a gateway and their number at this moment, or nil if all are in
// force. The caller must call leave.
func (q *pendingGateways) enter(gatewayID string) (p *pendingGateway, marks int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p = q.byID[gatewayID]; p == nil {
		return nil, 0
	}
	p.users++
	return p, p.marks
}

func (q *pendingGateways) leave(gatewayID string, p *pendingGateway) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.users--; p.users == 0 && p.done == p.marks {
		delete(q.byID, gatewayID)
	}
}

// take returns what there is to do for p, whose turn the caller holds. If the changes up to marks
// are done already, more is false, and err is nil if they are in force, else the reason why they
// are not.
func (q *pendingGateways) take(p *pendingGateway, marks int64) (todo gatewayTodo, now int64, more bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.done >= marks {
		return todo, 0, false, p.err
	}
	todo, p.todo = p.todo, gatewayTodo{}
	return todo, p.marks, true, nil
}

// finish records that the changes up to marks are in force, or that err prevents it.
func (q *pendingGateways) finish(p *pendingGateway, marks int64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.done, p.err = marks, err
}

// putBack puts work back that take returned and that could not be read.
func (q *pendingGateways) putBack(p *pendingGateway, todo gatewayTodo) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.todo.whole = p.todo.whole || todo.whole
	p.todo.after = max(p.todo.after, todo.after)
	if p.todo.whole {
		p.todo.routes = nil
		return
	}
	if p.todo.routes == nil {
		p.todo.routes = todo.routes
		return
	}
	maps.Copy(p.todo.routes, todo.routes)
}

// settle returns when the changes of a gateway that were read before the call are in force. The
// error says why they cannot be; if ctx ends, another call puts them in force.
func (f *Follower) settle(ctx context.Context, gatewayID string) error {
	p, marks := f.pending.enter(gatewayID)
	if p == nil {
		return nil
	}
	defer f.pending.leave(gatewayID, p)
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.turn }()
	todo, marks, more, err := f.pending.take(p, marks)
	if !more {
		return err
	}
	unusable, err := f.advance(ctx, gatewayID, todo)
	if err != nil {
		f.pending.putBack(p, todo)
		return err
	}
	f.pending.finish(p, marks, unusable)
	return unusable
}

// routeIDs returns the routes to read again, in a fixed order.
func (t *gatewayTodo) routeIDs() []string { return slices.Sorted(maps.Keys(t.routes)) }

// Gateway returns the gateway that the change belongs to and, for a RouteChange, the route.
// Both are "" for changes of other kinds.
func (c Change) Gateway() (gatewayID, routeID string) {
	switch c.Kind {
	case GatewayChange, SettingsChange, UpstreamChange:
		return c.ID, ""
	case RouteChange:
		gatewayID, routeID, _ = strings.Cut(c.ID, "/")
		return gatewayID, routeID
	}
	return "", ""
}

// RouteChangeID returns the ID of a RouteChange.
func RouteChangeID(gatewayID, routeID string) string { return gatewayID + "/" + routeID }
