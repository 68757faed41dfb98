package snapshot

import (
	"context"

	"github.com/keygate/keygate/internal/apikey"
)

// KeyClasses returns the number of classes of keys that are in use.
func (l *Follower) KeyClasses() int { return len(l.classes) }

// Lock waits for the right to write, as CatchUp and Load do.
func (l *Follower) Lock(ctx context.Context) error { return l.lock(ctx) }

// Unlock gives up the right to write.
func (l *Follower) Unlock() { l.unlock() }

// PutKey compiles k and puts it in force.
func (l *Follower) PutKey(k *apikey.Key) error { return l.putKey(l.Current().keys, k) }

// RemoveKey removes the key with the digest d, which is in force.
func (l *Follower) RemoveKey(d apikey.Digest) {
	table := l.Current().keys
	l.removeKey(table, table.find(&d))
}

// Digest returns the digest of the key's secret.
func (k *Key) Digest() apikey.Digest { return k.digest }
