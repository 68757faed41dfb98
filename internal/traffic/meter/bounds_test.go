package meter

import (
	"encoding/binary"
	"math"
	"strconv"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fairslots"
	"github.com/keygate/keygate/internal/traffic"
)

// Guarantee: what counts for usage records is bounded between two writes. Requests of further identities, or with costs of
// further meters, are counted as lost for usage records alone; those of known ones still count.
func TestUsageIsBounded(t *testing.T) {
	m, err := New(Config{Store: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	e := accesslog.Entry{Record: accesslog.Record{Start: 1_800_000_000_000_000, Account: [16]byte{1}, Status: 200}}
	e.SetPeriod(0, math.MaxInt64)
	take := func(n int) {
		binary.BigEndian.PutUint32(e.Key[12:], uint32(n+1))
		m.Take([]accesslog.Entry{e})
	}
	const most = maxUses / (fairslots.OfFree + 1) * fairslots.OfFree // of one account
	for n := range most + 3 {
		take(n)
	}
	take(0)
	e.Status = 201 // another cell of a known identity
	take(1)
	if got := m.LostUsage(); got != 3 || m.Lost() != 0 {
		t.Errorf("usage records lack %d requests and reports %d, want 3 and none", got, m.Lost())
	}
	if got := m.active.useShares.Taken(); got != most {
		t.Errorf("the window has %d identities, want %d", got, most)
	}
	cost := func(meter string) string {
		return string(accesslog.AppendCost(nil, &accesslog.Cost{Meter: meter, Units: 5}))
	}
	e.Cost = cost("tokens")
	take(0)
	e.Cost = string(accesslog.AppendCost(nil, &accesslog.Cost{Meter: "requests", Units: 5}))
	take(0)
	if got := m.LostUsage(); got != 4 || m.Lost() != 0 || m.active.useShares.Taken() != most {
		t.Errorf("with a new meter of a full window, usage records lack %d requests and reports %d of %d; want 4, none and %d", got, m.Lost(), m.active.useShares.Taken(), most)
	}
}

// Guarantee: an account that uses very many keys and routes while the store takes nothing costs no other account a request in
// its usage records or reports.
func TestNoAccountTakesTheRoomOfOthers(t *testing.T) {
	m, err := New(Config{Store: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	take := func(account byte, n int) {
		e := accesslog.Entry{Record: accesslog.Record{Start: 1_800_000_000_000_000, Account: [16]byte{account}, Status: 200}}
		e.SetPeriod(0, math.MaxInt64)
		e.Cost = string(accesslog.AppendCost(nil, &accesslog.Cost{Meter: "tokens", Units: 5}))
		binary.BigEndian.PutUint32(e.Key[12:], uint32(n+1))
		m.Take([]accesslog.Entry{e})
	}
	w := m.active
	for _, all := range []struct {
		*fairslots.Shares[[16]byte]
		most int
	}{{&w.useShares, maxUses}, {&w.cellShares, maxCells}} { // as after so many requests
		all.Take([16]byte{1}, all.most/(fairslots.OfFree+1)*fairslots.OfFree)
		take(1, 0)
	}
	if m.Lost() != 1 || m.LostUsage() != 2 {
		t.Fatalf("%d requests are lost, and usage records lack %d; want 1 and 2 of an account that has reached its bounds", m.Lost(), m.LostUsage())
	}
	lost, unbilled := m.Lost(), m.LostUsage()
	for n := range 10_000 {
		take(2, n)
	}
	if m.Lost() != lost || m.LostUsage() != unbilled {
		t.Errorf("another account lacks %d requests, and %d in its usage records; want none", m.Lost()-lost, m.LostUsage()-unbilled)
	}
}

// Guarantee: an account cannot make the memory of usage records grow by naming many meters in the costs of one route.
func TestMetersOfUsageAreBounded(t *testing.T) {
	m, err := New(Config{Store: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	e := accesslog.Entry{Record: accesslog.Record{Start: 1_800_000_000_000_000, Account: [16]byte{1}, Key: [16]byte{2}, Status: 200}}
	e.SetPeriod(0, math.MaxInt64)
	const meters = 3000
	for n := range meters {
		e.Cost = string(accesslog.AppendCost(nil, &accesslog.Cost{Meter: "m" + strconv.Itoa(n), Units: 1}))
		m.Take([]accesslog.Entry{e})
	}
	if got := m.active.useShares.Taken(); got != meters+1 {
		t.Errorf("the window counts %d identities and meters, want %d", got, meters+1)
	}
	m.active.reset()
	if got := len(m.active.names); got > keptNames {
		t.Errorf("%d names are kept for the next window, want at most %d", got, keptNames)
	}
}

// Guarantee: the memory for counts by target is bounded between two writes, for an account and in all. Further requests are
// counted together, and none is lost. Other accounts, and targets that are counted already, have their counts as before.
func TestTargetsAreBounded(t *testing.T) {
	m, err := New(Config{Store: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	w := m.active
	take := func(account byte, target string) {
		m.Take([]accesslog.Entry{{Record: accesslog.Record{Account: [16]byte{account}, Gateway: [16]byte{1}, Start: 1_800_000_000_000_000, Status: 200}, UpstreamName: "default", Target: target}})
	}
	of := func(account byte, upstream, target string) (n int64) {
		for _, s := range w.sent {
			if s.account[0] == account && s.to == (traffic.Destination{Upstream: upstream, Target: target}) {
				n += s.Requests
			}
		}
		return n
	}
	for n := range traffic.MaxDestinations + 7 {
		take(1, strconv.Itoa(n))
	}
	take(1, "3")
	if got, other := of(1, "default", "3"), of(1, "default", traffic.OtherDestination); got != 2 || other != 7 || len(w.sent) != traffic.MaxDestinations+1 {
		t.Errorf("a known target has %d requests, further ones %d, of %d destinations; want 2, 7 and %d", got, other, len(w.sent), traffic.MaxDestinations+1)
	}
	w.sentShares.Take([16]byte{2}, maxSent/(fairslots.OfFree+1)*fairslots.OfFree) // as after so many targets
	take(2, "a")
	take(2, "b")
	take(3, "a")
	if got, other := of(2, traffic.OtherDestination, traffic.OtherDestination), of(3, "default", "a"); got != 2 || other != 1 || m.Lost() != 0 {
		t.Errorf("an account at its bound has %d requests of others, another one %d of its target, %d are lost; want 2, 1 and none", got, other, m.Lost())
	}
	w.reset()
	if len(w.sent) != 0 || len(w.spareSent) == 0 {
		t.Error("after a flush, the memory is not kept")
	}
	take(1, "new")
	if got := of(1, "default", "new"); got != 1 || len(w.sent) != 1 {
		t.Errorf("after a flush, a new target has %d requests of %d destinations, want 1 of 1", got, len(w.sent))
	}
}

// Guarantee: the memory for counts by subject is bounded between two writes, for an account and in all. Further requests are
// counted together, and none is lost. Other accounts, and subjects that are counted already, have their counts as before.
func TestSubjectsAreBounded(t *testing.T) {
	m, err := New(Config{Store: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	w := m.active
	take := func(account byte, subject string) {
		m.Take([]accesslog.Entry{{Record: accesslog.Record{Account: [16]byte{account}, Gateway: [16]byte{1}, Start: 1_800_000_000_000_000, Status: 200}, Token: &accesslog.Token{IssuerID: "iss_1", Subject: subject}}})
	}
	of := func(account byte, issuerID, subject string) (n int64) {
		for _, s := range w.subjects {
			if s.account[0] == account && s.token == (accesslog.Token{IssuerID: issuerID, Subject: subject}) {
				n += s.Requests
			}
		}
		return n
	}
	for n := range traffic.MaxDestinations + 7 {
		take(1, strconv.Itoa(n))
	}
	take(1, "3")
	take(1, "") // a token that was refused
	if got, other := of(1, "iss_1", "3"), of(1, "iss_1", traffic.OtherDestination); got != 2 || other != 7 || len(w.subjects) != traffic.MaxDestinations+1 {
		t.Errorf("a known subject has %d requests, further ones %d, of %d subjects; want 2, 7 and %d", got, other, len(w.subjects), traffic.MaxDestinations+1)
	}
	w.subjectShares.Take([16]byte{2}, maxSubjects/(fairslots.OfFree+1)*fairslots.OfFree) // as after so many subjects
	take(2, "a")
	take(2, "b")
	take(3, "a")
	if got, other := of(2, traffic.OtherDestination, traffic.OtherDestination), of(3, "iss_1", "a"); got != 2 || other != 1 || m.Lost() != 0 {
		t.Errorf("an account at its bound has %d requests of others, another one %d of its subject, %d are lost; want 2, 1 and none", got, other, m.Lost())
	}
	w.reset()
	take(1, "new")
	if got := of(1, "iss_1", "new"); got != 1 || len(w.subjects) != 1 {
		t.Errorf("after a flush, a new subject has %d requests of %d subjects, want 1 of 1", got, len(w.subjects))
	}
}

// Guarantee: between two writes, the counts tell at most 64 meters of an account apart, whatever other accounts have; the
// others are counted together. What an account could make of this in memory is bounded: further requests are lost and counted.
func TestMetersOfTrafficAreBounded(t *testing.T) {
	m, err := New(Config{Store: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	e := accesslog.Entry{Record: accesslog.Record{Start: 1_800_000_000_000_000, Status: 200}}
	take := func(account byte, meter string) {
		e.Account[0], e.Cost = account, string(accesslog.AppendCost(nil, &accesslog.Cost{Meter: meter, Units: 1}))
		m.Take([]accesslog.Entry{e})
	}
	for n := range 100 {
		take(1, "m"+strconv.Itoa(n))
	}
	take(2, "tokens")
	for i, want := range []int64{36, 0} {
		a := m.active.amounts(&m.active.cells[i], nil)
		other := int64(0)
		for _, one := range a {
			if one.Meter == traffic.OtherMeter {
				other = one.Units
			}
		}
		if len(a) > traffic.MaxMeters+1 || other != want {
			t.Errorf("the counts of account %d have %d meters, and %d units of others; want at most %d, and %d", i+1, len(a), other, traffic.MaxMeters+1, want)
		}
	}
	m.active.chargeShares.Take([16]byte{3}, maxCharges)
	take(2, "tokens")
	if m.Lost() != 1 {
		t.Errorf("%d requests are lost of a full window, want 1", m.Lost())
	}
}
