package storetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

// newSession returns the i-th session of a key.
func (h *harness) newSession(accountID, keyID string, i int) *control.Session {
	at := epoch().Add(time.Duration(i) * time.Second)
	return &control.Session{
		Digest: sha256.Sum256(fmt.Append(nil, keyID, i)), AccountID: accountID, KeyID: keyID, CreatedAt: at, ExpiresAt: at.Add(time.Hour),
	}
}

func (h *harness) insertSession(s *control.Session, ofKey, ofAccount int) {
	h.Helper()
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertSession(ctx, s, ofKey, ofAccount) })
}

func (h *harness) wantSession(s *control.Session, exists bool) {
	h.Helper()
	got, err := try(h, func(ctx context.Context, tx control.ReadTx) (*control.Session, error) {
		return tx.Session(ctx, s.Digest)
	})
	if code := fault.CodeOf(err); exists != (err == nil) || !exists && code != fault.NotFound {
		h.Errorf("the session of %s created at %s: got %v, %v, want it to exist: %t", s.KeyID, s.CreatedAt, got, err, exists)
	}
}

// Guarantee: a session is stored with all its fields and read with the fields of its key. It can be
// removed, also twice.
func testSession(h *harness) {
	a := h.insertAccount("a")
	k := h.insertKey(a, nil)
	s := h.newSession(a.ID, k.ID, 0)
	h.insertSession(s, 2, 2)
	want := *s
	want.KeyDigest, want.KeyPrefix = k.Digest, k.Prefix
	got := get(h, func(ctx context.Context, tx control.ReadTx) (*control.Session, error) {
		return tx.Session(ctx, s.Digest)
	})
	same(h, "the session", *got, want)
	for range 2 {
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteSession(ctx, s.Digest) })
		h.wantSession(s, false)
	}
}

// Guarantee: inserting a session removes the oldest of the same key, and of the same account,
// beyond their maximum numbers, and no other. Trimming removes expired sessions.
func testSessionBounds(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	one, two, other := h.insertKey(a, nil), h.insertKey(a, nil), h.insertKey(b, nil)
	foreign := h.newSession(b.ID, other.ID, 0)
	h.insertSession(foreign, 2, 3)
	var sessions []*control.Session
	for i, k := range []string{one.ID, one.ID, one.ID, two.ID, two.ID} {
		s := h.newSession(a.ID, k, i)
		h.insertSession(s, 2, 3)
		sessions = append(sessions, s)
	}
	for i, exists := range []bool{false, false, true, true, true} { // the first by the key's number, the second by the account's
		h.wantSession(sessions[i], exists)
	}
	h.wantSession(foreign, true)
	trim := func(expired time.Time, limit int) (more bool) {
		h.update(func(ctx context.Context, tx control.Tx) (err error) {
			more, err = tx.TrimSessions(ctx, expired, limit)
			return err
		})
		return more
	}
	if !trim(sessions[3].ExpiresAt, 1) || !trim(sessions[3].ExpiresAt, 2) || trim(sessions[3].ExpiresAt, 2) {
		h.Error("trimming does not say whether there are others")
	}
	h.wantSession(foreign, false)
	for i, exists := range []bool{false, false, false, false, true} {
		h.wantSession(sessions[i], exists)
	}
}
