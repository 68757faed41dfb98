package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/client"
)

// load is what the clients of a fleet do. On each node, some send requests with keys and tokens in force, some with revoked
// keys and denied tokens, and some make calls with the sessions of users, suspended ones too. Managers create, rotate and
// revoke keys, deny tokens and suspend users through all nodes, and read.
type load struct {
	f      *fleet
	start  time.Time
	cancel context.CancelFunc
	ctx    context.Context // ends with the changes
	stop   chan struct{}   // closed when requests end
	groups [2]sync.WaitGroup

	mu      sync.Mutex
	live    []*liveKey
	revoked []revokedKey
	windows windows

	answers  atomic.Int64 // responses of the data plane
	revokes  atomic.Int64 // revocations that were answered
	denials  atomic.Int64 // of them, those of tokens
	replays  atomic.Int64 // requests with revoked keys that got a response
	failures atomic.Int64 // changes that got an error
	statuses [600]atomic.Int64
	sent     struct{ open, limited, capped, replayed, signedIn, suspended atomic.Int64 }

	signsIn     sync.Mutex // at the provider
	sessions    [userManagers]atomic.Pointer[userSession]
	suspensions atomic.Int64 // of users, that were answered
}

// liveKey is a key whose creation was answered, or a token.
type liveKey struct {
	secret, id string
	ends       atomic.Bool // a call that ends the key has begun
}

// revokedKey is a key or token that was ended by a call which was answered.
type revokedKey struct {
	secret, id string
	by         ending
	answered   time.Time
}

// ending is what ends a key or a token.
type ending string

const (
	revoked ending = "revocation"
	rotated ending = "rotation"
	denied  ending = "denial"
)

const (
	managers  = 10 // goroutines that change keys
	senders   = 2  // for each node
	replayers = 2  // for each node

	// The load leaves the machine some time for the stores.
	requestGap = 10 * time.Millisecond // between two requests of a goroutine, except for keys just revoked
	retryGap   = 20 * time.Millisecond // after a call that failed
)

const (
	managementTimeout = 10 * time.Second
)

func startLoad(f *fleet) *load {
	l := &load{f: f, start: time.Now(), stop: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	f.Cleanup(func() { // if the test fails early
		l.stopChanges()
		l.stopRequests()
	})
	for i := range managers {
		l.groups[0].Go(func() { l.manage(i) })
	}
	for i := range tokenManagers {
		l.groups[0].Go(func() { l.manageTokens(i) })
	}
	for i := range userManagers {
		l.groups[0].Go(func() { l.manageUsers(i) })
	}
	for _, n := range f.nodes {
		l.groups[0].Go(func() { l.read(n) })
		for range senders {
			l.groups[1].Go(func() { l.send(n) })
		}
		l.groups[1].Go(func() { l.useSessions(n) })
		for range replayers {
			l.groups[1].Go(func() { l.replay(n) })
		}
	}
	return l
}

// stopChanges ends the managers, each after its present call.
func (l *load) stopChanges() {
	l.cancel()
	l.groups[0].Wait()
}

// stopRequests ends the requests to the data plane. It is called once.
func (l *load) stopRequests() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.groups[1].Wait()
}

// apis returns random numbers for a manager, and what returns a client of a node that was not stopped when the call began.
func (l *load) apis(number int) (random *rand.Rand, anyAPI func() *client.Client) {
	random = rand.New(rand.NewPCG(uint64(number), 0))
	apis := make([]*client.Client, len(l.f.nodes))
	for i, n := range l.f.nodes {
		apis[i] = n.api(l.f.keys[number%len(l.f.keys)])
	}
	return random, func() *client.Client {
		i := random.IntN(len(apis))
		for l.f.nodes[i].disturbed.Load()%2 == 1 {
			i = (i + 1) % len(apis)
		}
		return apis[i]
	}
}

// manage creates a key, ends it by a rotation or a revocation, and so on.
func (l *load) manage(number int) {
	random, anyAPI := l.apis(number)
	var key *liveKey
	for l.ctx.Err() == nil {
		if key == nil {
			key = l.created(anyAPI().CreateKey(context.Background(), client.CreateKeyRequest{Name: "k", Scope: "read"}))
			continue
		}
		key.ends.Store(true)
		var next *liveKey
		by := revoked
		if random.IntN(2) == 0 {
			next = l.created(anyAPI().RotateKey(context.Background(), key.id, client.RotateKeyRequest{}))
			if next != nil {
				by = rotated
			}
		}
		// A rotation without a response may have been made or not. A revocation can be repeated.
		for next == nil {
			_, err := anyAPI().RevokeKey(context.Background(), key.id)
			if err == nil {
				break
			}
			l.judge(err)
		}
		l.ended(key, by)
		key = next
	}
}

// created returns a key that was created, or nil.
func (l *load) created(k *client.NewKey, err error) *liveKey {
	if err != nil {
		l.judge(err)
		return nil
	}
	key := &liveKey{secret: k.Secret, id: k.KeyID}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live = append(l.live, key)
	return key
}

// ended records that a call which ended the key or token was answered.
func (l *load) ended(key *liveKey, by ending) {
	answered := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, k := range l.live {
		if k == key {
			l.live[i] = l.live[len(l.live)-1]
			l.live = l.live[:len(l.live)-1]
			break
		}
	}
	l.revoked = append(l.revoked, revokedKey{key.secret, key.id, by, answered})
	l.revokes.Add(1)
}

// judge fails the test if a call of the management API got an error that nobody should get.
func (l *load) judge(err error) {
	l.failures.Add(1)
	// 409: the rotation was made, but its response was lost, or it is being made. 429: the rate limit of
	// the caller's key.
	l.wait(retryGap)
	if _, unreachable := errors.AsType[*client.UnreachableError](err); !unreachable && !refused(err, http.StatusServiceUnavailable, http.StatusConflict, http.StatusTooManyRequests) {
		l.f.Errorf("a change got the error: %v", err)
	}
}

// wait waits for a while, unless the changes end.
func (l *load) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.ctx.Done():
	}
}

// read reads lists and reports through a node.
func (l *load) read(n *node) {
	api := n.api(l.f.keys[0])
	for l.ctx.Err() == nil {
		for _, err := range api.Keys(l.ctx, client.KeyFilter{ListOptions: client.ListOptions{PageSize: 20}, State: "revoked"}) {
			l.judgeRead(err)
			break
		}
		_, err := api.Traffic(l.ctx, client.TrafficQuery{GatewayID: l.f.gateway, GroupBy: "route"})
		l.judgeRead(err)
		for _, err := range api.Limits(l.ctx, l.f.gateway, client.ListOptions{}) {
			l.judgeRead(err)
			break
		}
		l.wait(200 * time.Millisecond)
	}
}

func (l *load) judgeRead(err error) {
	if err != nil && l.ctx.Err() == nil {
		l.judge(err)
	}
}

// send sends requests with keys in force to a node.
func (l *load) send(n *node) {
	c := &conn{node: n, from: anyLoopback()}
	defer c.close()
	gap := time.NewTicker(requestGap)
	defer gap.Stop()
	for i := 0; ; i++ {
		select {
		case <-l.stop:
			return
		case <-gap.C:
		}
		key := l.anyLive()
		if key == nil {
			continue
		}
		switch i % 4 {
		case 0:
			l.sent.open.Add(1)
			l.request(c, "/open", key)
		case 1:
			l.sent.capped.Add(1)
			l.request(c, "/capped", key)
		default:
			l.sent.limited.Add(1)
			began := time.Since(l.start)
			if l.request(c, "/limited", key) == http.StatusOK {
				l.mu.Lock()
				l.windows.add(began, time.Since(l.start))
				l.mu.Unlock()
			}
		}
	}
}

func (l *load) anyLive() *liveKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.live) == 0 {
		return nil
	}
	return l.live[rand.IntN(len(l.live))]
}

// request sends a request with a key that was in force when it was chosen.
func (l *load) request(c *conn, path string, key *liveKey) (status int) {
	status = l.get(c, path, key.secret)
	if status == http.StatusUnauthorized && !key.ends.Load() {
		l.f.Errorf("%s responded %d to a key in force", c.node.name, status)
	}
	return status
}

// get sends a request and judges the status, which is 0 without a response.
func (l *load) get(c *conn, path, secret string) (status int) {
	status, err := c.get(path, secret)
	switch {
	case errors.Is(err, errExcused):
		return 0
	case err != nil:
		l.f.Errorf("%s did not respond: %v", c.node.name, err)
		return 0
	}
	l.answers.Add(1)
	l.statuses[status%len(l.statuses)].Add(1)
	switch status {
	case http.StatusOK, http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default:
		l.f.Errorf("%s responded %d to GET %s", c.node.name, status, path)
	}
	return status
}

// replay sends each revoked key and denied token to a node as soon as its end was answered, and older ones while there are no
// new ones. Each token comes from an address of its own.
func (l *load) replay(n *node) {
	withKey := &conn{node: n}
	defer withKey.close()
	gap := time.NewTicker(requestGap)
	defer gap.Stop()
	for next, stopping := 0, false; ; {
		l.mu.Lock()
		all := len(l.revoked)
		i := next
		if i >= all && all > 0 {
			i = rand.IntN(all)
		}
		var key revokedKey
		if all > 0 {
			key = l.revoked[i]
		}
		l.mu.Unlock()
		if next >= all {
			if stopping {
				return
			}
			select {
			case <-l.stop:
				stopping = true
				continue
			case <-gap.C:
			}
		}
		if all == 0 {
			continue
		}
		l.sent.replayed.Add(1)
		c := withKey
		if key.by == denied {
			c = &conn{node: n, from: anyLoopback()}
		}
		began := time.Now()
		status := l.get(c, fmt.Sprintf("/replayed/%d", i), key.secret)
		if status == http.StatusOK {
			l.f.Errorf("%s admitted %s in a request that began %v after the response to its %s, at %v",
				n.name, key.id, began.Sub(key.answered), key.by, began.Format(time.TimeOnly+".000"))
		}
		if c != withKey {
			c.close()
		}
		if status != 0 {
			l.replays.Add(1)
		}
		next = max(next, min(i+1, all))
	}
}
