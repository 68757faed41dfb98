package adminapi

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

const idempotencyHeader = "Idempotency-Key"

// checkIdempotencyKey performs the 400 check of the values of Idempotency-Key.
func checkIdempotencyKey(values []string) error {
	invalid := &fault.Error{Code: fault.InvalidRequest, Field: idempotencyHeader, Message: "must be a single header of 1 to 255 printable ASCII characters"}
	if len(values) == 0 {
		return nil
	}
	unprintable := func(r rune) bool { return r < 0x20 || r > 0x7e }
	if len(values) > 1 || len(values[0]) == 0 || len(values[0]) > 255 || strings.ContainsFunc(values[0], unprintable) {
		return invalid
	}
	return nil
}

// replay returns the stored response to an earlier call with the same
// Idempotency-Key, or nil if there is none (contract, section 2). If the response
// to this call will be stored, the call holds its key until the caller calls
// release; meanwhile another call with the same key is a conflict.
func (c *call) replay() (replayed *response, release func(), err error) {
	release = func() {}
	if !c.op.replayable || len(c.request.Header.Values(idempotencyHeader)) == 0 {
		return nil, release, nil
	}
	key := c.request.Header.Get(idempotencyHeader)
	release, acquired := c.api.running.acquire(c.principal.credentialID() + " " + key)
	if !acquired {
		return nil, release, &fault.Error{
			Code: fault.Conflict, Field: idempotencyHeader,
			Message: "another request with this Idempotency-Key is still running: retry when it has finished",
		}
	}
	fingerprint := c.fingerprint()
	stored, err := c.api.cfg.Control.StoredResponse(c.ctx, c.principal.credentialID(), key, fingerprint)
	switch {
	case err != nil:
		return nil, release, withIdempotencyField(err)
	case stored != nil:
		res := response{status: stored.Status, raw: stored.Body, header: stored.Header}.with("Idempotent-Replayed", "true")
		return &res, release, nil
	}
	c.idem = &control.Idempotency{KeyID: c.principal.credentialID(), Key: key, Fingerprint: fingerprint}
	return nil, release, nil
}

// withIdempotencyField sets the field of a validation error to Idempotency-Key.
func withIdempotencyField(err error) error {
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != fault.ValidationFailed {
		return err
	}
	named := *e
	named.Field = idempotencyHeader
	return &named
}

// fingerprint returns the SHA-256 of the request's method, path, query and body.
// The calling key is not part of it: stored responses are looked up by key.
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

// withIdempotency returns the context for an operation whose response is stored
// if the request has an Idempotency-Key. present turns the operation's result
// into the response.
func withIdempotency[R any](c *call, present func(R) response) context.Context {
	if c.idem == nil {
		return c.ctx
	}
	c.idem.Encode = func(result any) (int, map[string]string, []byte, error) {
		r, isResult := result.(R)
		if !isResult {
			return 0, nil, nil, fmt.Errorf("store the response: unexpected result type %T", result)
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

// inFlight holds the Idempotency-Keys of the running calls.
type inFlight struct {
	mu   sync.Mutex
	keys map[string]bool
}

func newInFlight() *inFlight { return &inFlight{keys: map[string]bool{}} }

// acquire holds key until release is called. ok is false if another call holds
// it; release then does nothing.
func (f *inFlight) acquire(key string) (release func(), ok bool) {
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
