package control_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// largeCall is a rollback with an Idempotency-Key whose response is large.
type largeCall struct {
	*pushed
	body []byte
}

func newLargeCall(t *testing.T) *largeCall {
	t.Helper()
	c := &largeCall{pushed: newPushed(t, 2), body: make([]byte, 700_000)}
	_, _ = rand.NewChaCha8([32]byte{}).Read(c.body) // it never fails
	return c
}

func (c *largeCall) rollback() error {
	call := control.WithIdempotency(ctx(), &control.Idempotency{
		KeyID: c.caller.KeyID, Key: "once",
		Encode: func(any) (int, map[string]string, []byte, error) {
			return 200, map[string]string{"ETag": "x"}, c.body, nil
		},
	})
	return second(c.Rollback(call, c.caller, c.id, 1, false, nil))
}

func (c *largeCall) counts() (n control.AccountCounts) {
	c.tb.Helper()
	c.must(c.db.View(ctx(), func(tx control.ReadTx) (err error) {
		n, err = tx.AccountCounts(ctx(), c.caller.Account.ID)
		return err
	}))
	return n
}

// trim removes what is too old.
func (c *largeCall) trim() {
	c.tb.Helper()
	for more := true; more; {
		c.must(c.db.Update(ctx(), func(tx control.Tx) (err error) {
			more, err = tx.Trim(context.Background(), c.clock.now().Add(-24*time.Hour), time.Time{}, time.Time{}, 0, 200)
			return err
		}))
	}
}

// Guarantee: the response to a rollback, of whatever size, is stored so that no transaction writes more than 128 KiB of it,
// and returned whole for 24 hours. Then nothing of it is left.
func TestLargeResponseIsStoredInParts(t *testing.T) {
	c := newLargeCall(t)
	c.must(c.rollback())
	check := func() {
		t.Helper()
		r := must[*control.StoredResponse](c.harness)(c.StoredResponse(ctx(), c.caller.KeyID, "once", [32]byte{}))
		if r == nil || !bytes.Equal(r.Body, c.body) || len(r.Header) != 1 || r.Header["ETag"] != "x" || r.Status != 200 {
			t.Fatalf("got the stored response %+.200v, want the whole response", r)
		}
	}
	check()
	raw := must[*control.StoredResponse](c.harness)(c.storedResponse(c.caller.KeyID))
	name, number, _ := strings.Cut(raw.Header["\x01parts"], " ")
	if len(raw.Body) != 0 || number != "6" {
		t.Errorf("got %d bytes in the response itself, and %q parts; want none and 6", len(raw.Body), number)
	}
	for _, n := range []string{"0", "5"} {
		c.must(c.db.View(ctx(), func(tx control.ReadTx) error {
			part, err := tx.StoredResponse(ctx(), c.caller.KeyID, "\x01"+name+" "+n)
			if err == nil && len(part.Body) > 128<<10 {
				t.Errorf("part %s has %d bytes, want at most 128 KiB", n, len(part.Body))
			}
			return err
		}))
	}
	if got := c.counts(); got.ResponseBytes < int64(len(c.body)) {
		t.Errorf("the account has %d bytes of responses, want all %d", got.ResponseBytes, len(c.body))
	}
	c.clock.advance(24*time.Hour - time.Second)
	c.trim()
	check()
	c.clock.advance(2 * time.Hour)
	c.trim()
	if got := c.counts(); got.Responses != 0 || got.ResponseBytes != 0 {
		t.Errorf("after a day the account has %d responses with %d bytes, want none", got.Responses, got.ResponseBytes)
	}
}

// Guarantee: a call that stores no response leaves no parts of one, and harms none that is stored.
func TestPartsOfAFailedCallAreRemoved(t *testing.T) {
	c := newLargeCall(t)
	c.must(c.rollback())
	before := c.counts()
	c.body[0]++ // by another process, which looked for a response before there was one
	c.wantCode(c.rollback(), fault.Conflict, "")
	c.body[0]--
	c.trim()
	if got := c.counts(); got != before {
		t.Errorf("after the call that failed the account has %+v, want %+v", got, before)
	}
	r := must[*control.StoredResponse](c.harness)(c.StoredResponse(ctx(), c.caller.KeyID, "once", [32]byte{}))
	if r == nil || !bytes.Equal(r.Body, c.body) {
		t.Error("the response of the first call is not whole")
	}
}

// Guarantee: a large response for which the account has no room is refused before anything of it is kept.
func TestLargeResponseBeyondTheBound(t *testing.T) {
	c := newLargeCall(t)
	c.bounds = control.AccountBounds{ResponseBytes: 500_000}
	c.serve(c.db)
	c.wantCode(c.rollback(), fault.RateLimitExceeded, "")
	c.trim()
	if got := c.counts(); got.Responses != 0 || got.ResponseBytes != 0 {
		t.Errorf("the account has %d responses with %d bytes, want none", got.Responses, got.ResponseBytes)
	}
	if g := must[*gateway.Gateway](c.harness)(c.Gateway(ctx(), c.caller, c.id)); g.Revision != 2 {
		t.Errorf("the gateway has the revision %d, want 2", g.Revision)
	}
}
