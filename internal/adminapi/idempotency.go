package adminapi

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

const idempotencyHeader = "Idempotency-Key"

// checkIdempotencyKey is the check 400 of the field on a POST.
func checkIdempotencyKey(fields []string) error {
	bad := &fault.Error{Code: fault.InvalidRequest, Field: idempotencyHeader, Message: "must be one field of 1 to 255 printable ASCII characters"}
	if len(fields) == 0 {
		return nil
	}
	if len(fields) > 1 || len(fields[0]) == 0 || len(fields[0]) > 255 {
		return bad
	}
	for _, c := range []byte(fields[0]) {
		if c < 0x20 || c > 0x7e {
			return bad
		}
	}
	return nil
}

// replay gives the kept answer to an earlier call with the same
// Idempotency-Key, if there is one. If there is none and the call's answer is
// to be kept, the call holds its key until release, and a second call under it
// is a conflict.
func (c *call) replay() (kept *response, release func(), err error) {
	release = func() {}
	if !c.op.replayable || len(c.request.Header.Values(idempotencyHeader)) == 0 {
		return nil, release, nil
	}
	key := c.request.Header.Get(idempotencyHeader)
	release, ours := c.api.running.acquire(c.principal.KeyID + " " + key)
	if !ours {
		return nil, release, &fault.Error{
			Code: fault.Conflict, Field: idempotencyHeader,
			Message: "a call with this Idempotency-Key is still running: try again when it has ended",
		}
	}
	fingerprint := c.fingerprint()
	stored, err := c.api.cfg.Control.Answer(c.ctx, c.principal.KeyID, key, fingerprint)
	switch {
	case err != nil:
		return nil, release, withIdempotencyField(err)
	case stored != nil:
		res := response{status: stored.Status, raw: stored.Body, header: stored.Header}.with("Idempotent-Replayed", "true")
		return &res, release, nil
	}
	c.idem = &control.Idempotency{KeyID: c.principal.KeyID, Key: key, Fingerprint: fingerprint}
	return nil, release, nil
}

// withIdempotencyField names the field of a mismatch.
func withIdempotencyField(err error) error {
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != fault.ValidationFailed {
		return err
	}
	named := *e
	named.Field = idempotencyHeader
	return &named
}

// fingerprint tells one call from another: its method, path, query and body.
// The calling key is part of the look-up.
func (c *call) fingerprint() (sum [32]byte) {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(c.request.Method), []byte(c.request.URL.EscapedPath()), []byte(c.request.URL.RawQuery), c.body} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	h.Sum(sum[:0])
	return sum
}

// withIdempotency returns the context for an operation whose answer is kept if the caller
// asked for that. present is what makes the answer of the operation's result.
func withIdempotency[R any](c *call, present func(R) response) context.Context {
	if c.idem == nil {
		return c.ctx
	}
	c.idem.Encode = func(result any) (int, map[string]string, []byte, error) {
		r, isResult := result.(R)
		if !isResult {
			return 0, nil, nil, fmt.Errorf("keep the answer: the result is a %T", result)
		}
		res := present(r).with("Content-Type", jsonType)
		body := res.body
		if res.replay != nil {
			body = res.replay
		}
		content, err := encode(body)
		return res.status, res.header, content, err
	}
	return control.WithIdempotency(c.ctx, c.idem)
}

// inFlight holds the Idempotency-Keys of the calls that run now.
type inFlight struct {
	mu   sync.Mutex
	keys map[string]bool
}

func newInFlight() *inFlight { return &inFlight{keys: map[string]bool{}} }

// acquire takes key until release. ours is false if another call has it.
func (f *inFlight) acquire(key string) (release func(), ours bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys[key] {
		return func() {}, false
	}
	f.keys[key] = true
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.keys, key)
	}, true
}
