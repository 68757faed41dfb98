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

// modelKey is the model's copy of a key.
type modelKey struct {
	id, secret         string
	rate, bucket       string
	expires, revokedAt time.Time
	rotatedTo          string
	ended              bool // by a rotation without overlap
}

// keyModel is the model: the keys, and the events and audit records that their changes
// must have written.
type keyModel struct {
	*harness
	caller         *control.Actor
	keys           []*modelKey
	checks         int
	events, audits []string

	// checkedEvents and checkedAudits are how many of them were compared with the store.
	checkedEvents, checkedAudits int
}

// Guarantee: through any sequence of creations, rotations, patches, revocations, expiries
// and restarts, every key is in the state of the contract (3.1, 3.2), verification agrees,
// and there is exactly one event and one audit record for each change.
func TestKeyLife(t *testing.T) {
	h := newHarness(t)
	accounts := 0
	rapid.Check(t, func(rt *rapid.T) {
		h.tb = rt
		defer func() { h.tb = t }()
		accounts++ // a new account for each run, instead of a new store
		m := &keyModel{harness: h, caller: h.caller(fmt.Sprintf("acme%d", accounts), "admin")}
		m.audits, m.events, _ = m.logs(m.caller.Account.ID).summary()
		rt.Repeat(map[string]func(*rapid.T){
			"create":  m.create,
			"rotate":  m.rotate,
			"patch":   m.patch,
			"revoke":  m.revoke,
			"time":    m.wait,
			"notify":  func(*rapid.T) { m.notify() },
			"restart": m.restart,
			"":        m.check,
		})
		m.checkLogs()
		m.clock.advance(31 * 24 * time.Hour) // leave no expiry to the next run
		m.notify()
	})
}

// restart reopens the store in one of five calls, because that costs as much as a hundred other
// steps. It then compares the whole logs; check compares only new entries.
func (m *keyModel) restart(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "restart?") != 0 {
		t.Skip("no restart drawn")
	}
	m.reopen()
	m.checkLogs()
}

func (m *keyModel) state(k *modelKey) apikey.State {
	switch now := m.clock.now(); {
	case !k.revokedAt.IsZero():
		return apikey.Revoked
	case !k.expires.IsZero() && !now.Before(k.expires):
		return apikey.Expired
	default:
		return apikey.Active
	}
}

func (m *keyModel) create(t *rapid.T) {
	in := control.KeyInput{Name: "k", Scope: "read", RateLimit: keyRate(drawRate(t)), ExpiresAt: m.drawExpiry(t)}
	k := must[*control.NewKey](m.harness)(m.CreateKey(ctx(), m.caller, in))
	m.keys = append(m.keys, &modelKey{id: k.ID, secret: k.Secret, rate: in.RateLimit.Rate, bucket: k.ID, expires: parseTime(in.ExpiresAt)})
	m.did("key.create", k.ID, "key.created")
}

func (m *keyModel) rotate(t *rapid.T) {
	k := m.draw(t)
	days, expiry := rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "overlap"), m.drawExpiry(t)
	made, err := m.RotateKey(ctx(), m.caller, k.id, days, expiry, nil)
	if m.state(k) != apikey.Active || k.rotatedTo != "" {
		m.wantCode(err, fault.Conflict, "")
		return
	}
	m.must(err)
	ends := m.clock.now().Add(time.Duration(days) * 24 * time.Hour)
	next := &modelKey{id: made.ID, secret: made.Secret, rate: k.rate, bucket: k.bucket, expires: k.expires}
	if expiry != "" {
		next.expires = parseTime(expiry)
	}
	if k.expires.IsZero() || ends.Before(k.expires) {
		k.expires = ends
	}
	k.rotatedTo, k.ended = made.ID, days == 0
	m.keys = append(m.keys, next)
	m.did("key.rotate", k.id, "key.rotated")
	m.events = append(m.events, "key.created "+made.ID)
	if days == 0 {
		m.events = append(m.events, "key.expired "+k.id)
	}
}

func (m *keyModel) patch(t *rapid.T) {
	k := m.draw(t)
	var p control.KeyPatch
	rate, expires := k.rate, k.expires
	if rapid.Bool().Draw(t, "rate?") {
		if rate = drawRate(t); rate == "" {
			p.RateLimit = null[control.KeyLimitInput]()
		} else {
			p.RateLimit = value(keyRate(rate))
		}
	} else {
		text := m.drawExpiry(t)
		if expires = parseTime(text); text == "" {
			p.ExpiresAt = null[string]()
		} else {
			p.ExpiresAt = value(text)
		}
	}
	_, err := m.UpdateKey(ctx(), m.caller, k.id, p, nil)
	longer := k.rotatedTo != "" && (expires.IsZero() || expires.After(k.expires))
	if m.state(k) != apikey.Active || longer {
		m.wantCode(err, fault.Conflict, "")
		return
	}
	m.must(err)
	if rate == k.rate && expires.Equal(k.expires) {
		return
	}
	k.expires = expires
	m.did("key.update", k.id)
	if rate != k.rate {
		for _, partner := range m.keys {
			if partner.bucket == k.bucket && m.state(partner) != apikey.Revoked && !m.endedLongAgo(partner) {
				if partner != k && partner.rate != rate {
					m.did("key.update", partner.id)
				}
				partner.rate = rate
			}
		}
	}
}

// endedLongAgo reports whether a key does not get changes of its chain's rate limit any more.
func (m *keyModel) endedLongAgo(k *modelKey) bool {
	return k.ended || !k.expires.IsZero() && k.expires.Before(m.clock.now().Add(-3*24*time.Hour))
}

func (m *keyModel) revoke(t *rapid.T) {
	k := m.draw(t)
	state := m.state(k)
	must[*apikey.Key](m.harness)(m.RevokeKey(ctx(), m.caller, k.id, nil))
	if state == apikey.Revoked {
		return
	}
	if state == apikey.Expired && !slices.Contains(m.events, "key.expired "+k.id) {
		m.events = append(m.events, "key.expired "+k.id)
	}
	k.revokedAt = m.clock.now()
	m.did("key.revoke", k.id, "key.revoked")
}

func (m *keyModel) wait(t *rapid.T) {
	m.clock.advance(time.Duration(rapid.IntRange(1, 5*86400).Draw(t, "seconds")) * time.Second)
}

// notify emits the events of expiries, and adds them to the model in the order of expiry.
func (m *keyModel) notify() {
	var due []*modelKey
	for _, k := range m.keys {
		if m.state(k) == apikey.Expired && !slices.Contains(m.events, "key.expired "+k.id) {
			due = append(due, k)
		}
	}
	slices.SortStableFunc(due, func(a, b *modelKey) int { return a.expires.Compare(b.expires) })
	if got := must[int](m.harness)(m.NotifyExpired(ctx())); got != len(due) {
		m.tb.Fatalf("got %d expiry events; want %d", got, len(due))
	}
	for _, k := range due {
		m.events = append(m.events, "key.expired "+k.id)
	}
}

// check compares every key and the log entries written since the last check with the
// model, and verifies one key, another each time.
func (m *keyModel) check(*rapid.T) {
	stored := map[string]apikey.Key{}
	for _, k := range must[[]apikey.Key](m.harness)(m.Keys(ctx(), m.caller, control.KeyFilter{Level: apikey.GatewayLevel}, control.Page{Limit: 1000})) {
		stored[k.ID] = k
	}
	for _, k := range m.keys {
		got := stored[k.id]
		if got.State(m.clock.now()) != m.state(k) || got.RateLimit.String() != k.rate || !got.ExpiresAt.Equal(k.expires) ||
			got.RotatedTo != k.rotatedTo || got.BucketID != k.bucket {
			m.tb.Fatalf("got key %+v; want %+v", got, k)
		}
	}
	if m.checks++; len(m.keys) > 0 {
		k := m.keys[m.checks%len(m.keys)]
		v := must[*control.Verification](m.harness)(m.VerifyKey(ctx(), m.caller, k.secret, "", "", ""))
		want := map[apikey.State]string{apikey.Active: "", apikey.Expired: "key_expired", apikey.Revoked: "key_invalid"}[m.state(k)]
		if v.Code != want || v.State != m.state(k) {
			m.tb.Fatalf("got verification %+v; want code %q and state %s", v, want, m.state(k))
		}
	}
	m.checkNewLogs()
}

// checkNewLogs compares the log entries written since the last call with the model. It
// reads one entry more, so that an entry too many is found at once. checkLogs compares
// the older entries.
func (m *keyModel) checkNewLogs() {
	fromEvent, fromAudit := max(m.checkedEvents-1, 0), max(m.checkedAudits-1, 0)
	got := m.newest(m.caller.Account.ID, len(m.audits)-fromAudit, len(m.events)-fromEvent)
	m.wantLogs(got, m.audits[fromAudit:], m.events[fromEvent:])
	m.checkedEvents, m.checkedAudits = len(m.events), len(m.audits)
}

// checkLogs compares all events and audit records of the run with the model.
func (m *keyModel) checkLogs() {
	m.wantLogs(m.logs(m.caller.Account.ID), m.audits, m.events)
}

func (m *keyModel) wantLogs(got records, wantAudits, wantEvents []string) {
	audits, events, _ := got.summary()
	if !slices.Equal(events, wantEvents) {
		m.tb.Fatalf("got events\n%q\nwant\n%q", events, wantEvents)
	}
	if !slices.Equal(audits, wantAudits) {
		m.tb.Fatalf("got audit records\n%q\nwant\n%q", audits, wantAudits)
	}
}

func (m *keyModel) did(action, id string, events ...string) {
	m.audits = append(m.audits, action+" "+id)
	for _, e := range events {
		m.events = append(m.events, e+" "+id)
	}
}

func (m *keyModel) draw(t *rapid.T) *modelKey {
	if len(m.keys) == 0 {
		t.Skip("no key yet")
	}
	return rapid.SampledFrom(m.keys).Draw(t, "key")
}

func (m *keyModel) drawExpiry(t *rapid.T) string {
	hours := rapid.SampledFrom([]int{0, 1, 24, 60, 24 * 30}).Draw(t, "expiry")
	if hours == 0 {
		return ""
	}
	return m.clock.now().Add(time.Duration(hours) * time.Hour).Format(time.RFC3339Nano)
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
