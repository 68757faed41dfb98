package control_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

// modelKey is what the model knows of a key.
type modelKey struct {
	id, secret         string
	rate, bucket       string
	expires, revokedAt time.Time
	rotatedTo          string
}

// life is the model: the keys, and the events and audit records that they must
// have left.
type life struct {
	*harness
	caller         *control.Caller
	keys           []*modelKey
	checks         int
	events, audits []string
}

// Guarantee: through any sequence of creations, rotations, patches,
// revocations, expiries and restarts, each key is in the state that the
// contract (3.1, 3.2) says, verification agrees, and the events and audit
// records are exactly those of the changes.
func TestKeyLife(t *testing.T) {
	h := newHarness(t)
	accounts := 0
	rapid.Check(t, func(rt *rapid.T) {
		h.tb = rt
		defer func() { h.tb = t }()
		accounts++ // a new one for each run, so that the store need not be
		l := &life{harness: h, caller: h.caller(fmt.Sprintf("acme%d", accounts), "admin")}
		l.audits, l.events, _ = l.ledger(l.caller.Account.ID).story()
		rt.Repeat(map[string]func(*rapid.T){
			"create":  l.create,
			"rotate":  l.rotate,
			"patch":   l.patch,
			"revoke":  l.revoke,
			"time":    l.wait,
			"tell":    func(*rapid.T) { l.tell() },
			"restart": l.restart,
			"":        l.check,
		})
		l.clock.advance(31 * 24 * time.Hour) // leave no expiry to the next run
		l.tell()
	})
}

// restart is rare: it costs as much as a hundred calls.
func (l *life) restart(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "restart?") != 0 {
		t.Skip("not this time")
	}
	l.reopen()
}

func (l *life) state(k *modelKey) apikey.State {
	switch now := l.clock.now(); {
	case !k.revokedAt.IsZero():
		return apikey.Revoked
	case !k.expires.IsZero() && !now.Before(k.expires):
		return apikey.Expired
	default:
		return apikey.Active
	}
}

func (l *life) create(t *rapid.T) {
	in := control.KeyInput{Name: "k", Scope: "read", RateLimit: drawRate(t), ExpiresAt: l.drawExpiry(t)}
	k := must[*control.NewKey](l.harness)(l.CreateKey(ctx(), l.caller, in))
	l.keys = append(l.keys, &modelKey{id: k.ID, secret: k.Secret, rate: in.RateLimit, bucket: k.ID, expires: parseTime(in.ExpiresAt)})
	l.did("key.create", k.ID, "key.created")
}

func (l *life) rotate(t *rapid.T) {
	k := l.draw(t)
	days, expiry := rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "overlap"), l.drawExpiry(t)
	made, err := l.RotateKey(ctx(), l.caller, k.id, days, expiry, nil)
	if l.state(k) != apikey.Active || k.rotatedTo != "" {
		l.wantCode(err, fault.Conflict, "")
		return
	}
	l.must(err)
	ends := l.clock.now().Add(time.Duration(days) * 24 * time.Hour)
	next := &modelKey{id: made.ID, secret: made.Secret, rate: k.rate, bucket: k.bucket, expires: k.expires}
	if expiry != "" {
		next.expires = parseTime(expiry)
	}
	if k.expires.IsZero() || ends.Before(k.expires) {
		k.expires = ends
	}
	k.rotatedTo = made.ID
	l.keys = append(l.keys, next)
	l.did("key.rotate", k.id, "key.rotated")
	l.events = append(l.events, "key.created "+made.ID)
	if days == 0 {
		l.events = append(l.events, "key.expired "+k.id)
	}
}

func (l *life) patch(t *rapid.T) {
	k := l.draw(t)
	var p control.KeyPatch
	rate, expires := k.rate, k.expires
	if rapid.Bool().Draw(t, "rate?") {
		if rate = drawRate(t); rate == "" {
			p.RateLimit = null[string]()
		} else {
			p.RateLimit = value(rate)
		}
	} else {
		text := l.drawExpiry(t)
		if expires = parseTime(text); text == "" {
			p.ExpiresAt = null[string]()
		} else {
			p.ExpiresAt = value(text)
		}
	}
	_, err := l.UpdateKey(ctx(), l.caller, k.id, p, nil)
	longer := k.rotatedTo != "" && (expires.IsZero() || expires.After(k.expires))
	if l.state(k) != apikey.Active || longer {
		l.wantCode(err, fault.Conflict, "")
		return
	}
	l.must(err)
	if rate == k.rate && expires.Equal(k.expires) {
		return
	}
	k.expires = expires
	l.did("key.update", k.id)
	if rate != k.rate {
		for _, partner := range l.keys {
			if partner.bucket == k.bucket && l.state(partner) != apikey.Revoked {
				if partner != k && partner.rate != rate {
					l.did("key.update", partner.id)
				}
				partner.rate = rate
			}
		}
	}
}

func (l *life) revoke(t *rapid.T) {
	k := l.draw(t)
	state := l.state(k)
	must[*apikey.Key](l.harness)(l.RevokeKey(ctx(), l.caller, k.id, nil))
	if state == apikey.Revoked {
		return
	}
	if state == apikey.Expired && !slices.Contains(l.events, "key.expired "+k.id) {
		l.events = append(l.events, "key.expired "+k.id)
	}
	k.revokedAt = l.clock.now()
	l.did("key.revoke", k.id, "key.revoked")
}

func (l *life) wait(t *rapid.T) {
	l.clock.advance(time.Duration(rapid.IntRange(1, 5*86400).Draw(t, "seconds")) * time.Second)
}

// tell adds the events of expiries in the order of their time.
func (l *life) tell() {
	var due []*modelKey
	for _, k := range l.keys {
		if l.state(k) == apikey.Expired && !slices.Contains(l.events, "key.expired "+k.id) {
			due = append(due, k)
		}
	}
	slices.SortStableFunc(due, func(a, b *modelKey) int { return a.expires.Compare(b.expires) })
	if got := must[int](l.harness)(l.NotifyExpired(ctx())); got != len(due) {
		l.tb.Fatalf("%d expiries told; want %d", got, len(due))
	}
	for _, k := range due {
		l.events = append(l.events, "key.expired "+k.id)
	}
}

// check compares every key and the whole ledger with the model, and asks for
// the verification of one key after the other.
func (l *life) check(*rapid.T) {
	stored := map[string]apikey.Key{}
	for _, k := range must[[]apikey.Key](l.harness)(l.Keys(ctx(), l.caller, control.KeyFilter{Level: apikey.GatewayLevel}, control.Page{Limit: 1000})) {
		stored[k.ID] = k
	}
	for _, k := range l.keys {
		got := stored[k.id]
		if got.State(l.clock.now()) != l.state(k) || got.RateLimit.String() != k.rate || !got.ExpiresAt.Equal(k.expires) ||
			got.RotatedTo != k.rotatedTo || got.BucketID != k.bucket {
			l.tb.Fatalf("key %+v; the model has %+v", got, k)
		}
	}
	if l.checks++; len(l.keys) > 0 {
		k := l.keys[l.checks%len(l.keys)]
		v := must[*control.Verification](l.harness)(l.VerifyKey(ctx(), l.caller, k.secret, "", "", ""))
		want := map[apikey.State]string{apikey.Active: "", apikey.Expired: "key_expired", apikey.Revoked: "key_invalid"}[l.state(k)]
		if v.Code != want || v.State != l.state(k) {
			l.tb.Fatalf("verification %+v of a key that is %s", v, l.state(k))
		}
	}
	audits, events, _ := l.ledger(l.caller.Account.ID).story()
	if !slices.Equal(events, l.events) {
		l.tb.Fatalf("events\n%q\nwant\n%q", events, l.events)
	}
	if !slices.Equal(audits, l.audits) {
		l.tb.Fatalf("audit records\n%q\nwant\n%q", audits, l.audits)
	}
}

func (l *life) did(action, id string, events ...string) {
	l.audits = append(l.audits, action+" "+id)
	for _, e := range events {
		l.events = append(l.events, e+" "+id)
	}
}

func (l *life) draw(t *rapid.T) *modelKey {
	if len(l.keys) == 0 {
		t.Skip("no key yet")
	}
	return rapid.SampledFrom(l.keys).Draw(t, "key")
}

func (l *life) drawExpiry(t *rapid.T) string {
	hours := rapid.SampledFrom([]int{0, 1, 24, 60, 24 * 30}).Draw(t, "expiry")
	if hours == 0 {
		return ""
	}
	return l.clock.now().Add(time.Duration(hours) * time.Hour).Format(time.RFC3339Nano)
}

func drawRate(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "5/s", "60/min"}).Draw(t, "rate")
}

func parseTime(text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t
}
