package send

import (
	"sync"

	"github.com/keygate/keygate/internal/upstream"
)

// kept is what was sent of a request's body over HTTP/1.1, framing included, so that it can be sent once more to another
// target. It gives up when that is too much (upstream.Replay). One goroutine adds what it sends while another reads the
// response. Nil keeps nothing.
type kept struct {
	mu     sync.Mutex
	replay upstream.Replay
}

// newKept begins to keep the body of a request to the server of p, with its first part.
func newKept(p *upstream.H1Pool, first []byte) *kept {
	k := &kept{}
	k.replay.BeginPlain(p)
	k.replay.Add(first)
	return k
}

// add keeps a further part.
func (k *kept) add(part []byte) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replay.Add(part)
}

// giveUp frees the memory and keeps nothing more of the body.
func (k *kept) giveUp() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replay.Drop()
}

// has reports whether all that was sent was kept.
func (k *kept) has() bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.replay.Bytes()
	return ok
}

// appendTo appends what was kept.
func (k *kept) appendTo(dst []byte) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	b, _ := k.replay.Bytes()
	return append(dst, b...)
}
