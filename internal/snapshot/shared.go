package snapshot

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// readPoint is how far the change log was read, and by which read.
type readPoint struct {
	Position
	read int64
}

// appliedPoint is how far everything that was read is in force.
type appliedPoint struct {
	mu sync.Mutex
	readPoint
}

// Applied returns the position of the change log up to which every change is in force on this node. It
// needs Config.Shared.
func (f *Follower) Applied() Position {
	f.applied.mu.Lock()
	defer f.applied.mu.Unlock()
	return f.applied.Position
}

// Lag returns how many changes were read and are not in force yet.
func (f *Follower) Lag() int64 { return max(0, f.seq.Load()-f.Applied().Number) }

// setApplied records that everything up to p is in force. A p that was read before another one that is
// in force changes nothing.
func (f *Follower) setApplied(p *readPoint) {
	if f.cfg.Shared == nil || p == nil {
		return
	}
	f.applied.mu.Lock()
	changed := p.read > f.applied.read && p.Position != f.applied.Position
	if p.read > f.applied.read {
		f.applied.readPoint = *p
	}
	f.applied.mu.Unlock()
	if changed {
		f.cfg.Shared.Applied()
	}
}

// setRead records that the change log was read up to p, and that what it says of keys and accounts is in
// force and the rest is pending.
func (f *Follower) setRead(p Position) {
	read := int64(1)
	if last := f.at.Load(); last != nil {
		read += last.read
	}
	f.seq.Store(p.Number)
	f.at.Store(&readPoint{Position: p, read: read})
}

// lastPosition returns the position of the newest change.
func (f *Follower) lastPosition(ctx context.Context) (Position, error) {
	if f.cfg.Shared != nil {
		return f.cfg.Shared.Log.LastPosition(ctx)
	}
	seq, err := f.cfg.Source.LastSeq(ctx)
	return Position{Number: seq}, err
}

// nextChanges returns the changes that follow what was read.
func (f *Follower) nextChanges(ctx context.Context) (changes []Change, complete bool, err error) {
	if f.cfg.Shared == nil {
		return f.cfg.Source.Changes(ctx, f.seq.Load(), changeBatch)
	}
	changes, complete, err = f.cfg.Shared.Log.ChangesAfter(ctx, f.at.Load().Position, changeBatch)
	if err == nil && !complete {
		f.cfg.Shared.Restarted()
	}
	return changes, complete, err
}

// joined puts in force that another node has joined.
func (f *Follower) joined(ctx context.Context) error {
	if f.cfg.Shared == nil || f.cfg.Shared.Joined == nil {
		return nil
	}
	return f.cfg.Shared.Joined(ctx)
}

// pollWait returns the time until the next read of the change log. Several nodes spread theirs.
func (f *Follower) pollWait() time.Duration {
	if f.cfg.Shared == nil {
		return f.cfg.PollInterval
	}
	return f.cfg.PollInterval/2 + time.Duration(rand.Int64N(int64(f.cfg.PollInterval)))
}

// refuseUnreadable refuses a key whose record one of several nodes cannot read, until it can. It returns
// err if there is only one node, or it is the store that cannot be read.
func (f *Follower) refuseUnreadable(keyID string, err error) error {
	if !f.isUnreadable(err) {
		return err
	}
	f.cfg.Log.Error("a key cannot be read and is refused", "key_id", keyID, "error", err)
	f.unreadable[keyID] = struct{}{}
	if u, ok := id.Parse(id.Key, keyID); ok {
		f.forgetKey(f.Current().keys, u)
	}
	return nil
}

func (f *Follower) isUnreadable(err error) bool {
	return f.cfg.Shared != nil && fault.CodeOf(err) == fault.Internal && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// readUnreadable reads again the keys that could not be read. The caller holds the lock.
func (f *Follower) readUnreadable(ctx context.Context) error {
	for keyID := range f.unreadable {
		switch err := f.readKey(ctx, keyID); {
		case err == nil:
			delete(f.unreadable, keyID)
		case !f.isUnreadable(err):
			return err
		}
	}
	return nil
}

// putReadable is putKey for each of all keys, of which one of several nodes leaves out those that it
// cannot read.
func (f *Follower) putReadable(table *keyTable, k *apikey.Key) error {
	err := f.putKey(table, k)
	if err == nil || !f.isUnreadable(err) {
		return err
	}
	f.cfg.Log.Error("a key cannot be read and is refused", "key_id", k.ID, "error", err)
	f.unreadable[k.ID] = struct{}{}
	if old := table.find(&k.Digest); old != nil {
		f.removeKey(table, old)
	}
	return nil
}

// outOfService returns the form of a gateway that cannot be compiled. It keeps the limits of old, the
// gateway in force, if that is not nil.
func (f *Follower) outOfService(g *gateway.Gateway, old *Gateway, read int64) *Gateway {
	c := &Gateway{ID: g.ID, AccountID: g.AccountID, tree: &gateway.Tree[Node]{}}
	c.UUID, _ = id.Parse(id.Gateway, g.ID)
	c.AccountUUID, _ = id.Parse(id.Account, g.AccountID)
	params := f.defaultGlobal
	c.global.Default, c.global.Scope, c.global.Params = true, ratelimit.GlobalScope, &params
	if old != nil {
		*c = *old
	}
	c.OutOfService, c.read, c.isDefault, c.hostname = true, read, g.Default, strings.ToLower(g.Hostname)
	if !g.HostGiven {
		c.hostname = gateway.DefaultHostname(g.ID, f.cfg.GatewayDomain)
	}
	return c
}
