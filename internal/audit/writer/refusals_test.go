package writer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
)

// refuse takes n requests of an address that are refused at a time.
func (b *busy) refuse(account [16]byte, client string, at time.Time, n int, result accesslog.Result) {
	entries := make([]accesslog.Entry, n)
	for i := range entries {
		e := &entries[i]
		e.Path, e.Account, e.Start, e.Request, e.Authenticated = fmt.Sprint("/", i), account, at.UnixMicro(), id.NewFastAt(at.UnixMilli()), true
		e.Result, e.Client = result, netip.MustParseAddr(client).As16()
		copy(e.Prefix[:], fmt.Sprintf("kg_%06d", i))
	}
	b.writer.Take(entries)
}

// listed returns the records of an account, newest first, and how many events they stand for.
func (b *busy) listed(account [16]byte) (list []audit.Record, events int64) {
	b.t.Helper()
	err := b.View(b.t.Context(), func(tx control.ReadTx) error {
		for after := ""; ; {
			page, err := tx.AuditLog(b.t.Context(), id.Format(id.Account, account), audit.Filter{}, control.Page{Limit: 100, After: after})
			if err != nil || len(page) == 0 {
				return err
			}
			list, after = append(list, page...), page[len(page)-1].Cursor
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range list {
		events += max(1, list[i].Count)
	}
	return list, events
}

// Guarantee: 60 refused authentications of an address in a minute have records of their own. Those beyond are one
// record, before it is sealed and after, in however many writes they came; their number is exact.
func TestRefusalsOfAnAddressBecomeOneRecord(t *testing.T) {
	b, accounts := newBusy(t, 1)
	minute := b.now.Truncate(time.Minute)
	const writes, each = 9, 500
	for i := range writes {
		b.refuse(accounts[0], "203.0.113.7", minute.Add(time.Duration(i)*time.Second), each, accesslog.KeyInvalid)
		if err := b.writer.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		list, events := b.listed(accounts[0])
		if len(list) != refusalsEach+1 || events != writes*each {
			t.Fatalf("%s, %d records stand for %d events; want %d for %d", when, len(list), events, refusalsEach+1, writes*each)
		}
		r := list[slices.IndexFunc(list, func(r audit.Record) bool { return r.Count > 0 })]
		if r.Count != writes*each-refusalsEach || r.Outcome != audit.KeyInvalid || r.ClientIP != "203.0.113.7" || r.Path != "/60" || r.KeyPrefix != "" || !r.Time.Equal(minute) {
			t.Errorf("%s, the record is %+v", when, r)
		}
	}
	check("before the seal")
	if err := b.writer.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("after the seal")
}

// Guarantee: addresses, minutes and accounts are counted apart, the networks of an IPv6 address together; other
// outcomes than 401 are not counted; what differs between the refusals of a record is not in it.
func TestRefusalsAreCountedApart(t *testing.T) {
	b, accounts := newBusy(t, 2)
	minute := b.now.Truncate(time.Minute)
	b.refuse(accounts[0], "203.0.113.7", minute, 100, accesslog.KeyInvalid)
	b.refuse(accounts[0], "203.0.113.8", minute, 60, accesslog.KeyInvalid)
	b.refuse(accounts[0], "2001:db8::1", minute, 70, accesslog.KeyExpired)
	b.refuse(accounts[0], "2001:db8::2", minute, 10, accesslog.KeyExpired)
	b.refuse(accounts[0], "198.51.100.1", minute, 100, accesslog.WrongScope)
	b.refuse(accounts[1], "203.0.113.7", minute, 61, accesslog.KeyExpired)
	b.refuse(accounts[1], "203.0.113.7", minute, 5, accesslog.KeyInvalid)
	b.refuse(accounts[0], "203.0.113.7", minute.Add(time.Minute), 61, accesslog.KeyInvalid)
	b.refuse(accounts[0], "203.0.113.7", minute, 3, accesslog.KeyInvalid) // late
	if err := b.writer.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	type counted struct {
		client  string
		outcome audit.Outcome
		count   int64
	}
	for i, want := range [][]counted{
		{{"203.0.113.7", audit.KeyInvalid, 1}, {"203.0.113.7", audit.KeyInvalid, 40}, {"2001:db8::1", audit.KeyExpired, 20}},
		{{"203.0.113.7", audit.KeyInvalid, 6}},
	} {
		list, events := b.listed(accounts[i])
		var got []counted
		for _, r := range list {
			if r.Count > 0 {
				got = append(got, counted{r.ClientIP, r.Outcome, r.Count})
			}
		}
		if all := []int64{100 + 60 + 80 + 100 + 61 + 3, 66}[i]; events != all || len(got) != len(want) {
			t.Fatalf("account %d has %d events and the counts %v; want %d and %v", i, events, got, all, want)
		}
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("account %d has the counts %v, without %v", i, got, w)
			}
		}
	}
}

// Guarantee: the memory for counting is bounded. Addresses beyond have a record for each refusal, so that nothing is
// lost, and the next minute begins anew.
func TestRefusalsOfManyAddressesAreBounded(t *testing.T) {
	var r refusals
	at := time.Date(2026, 8, 26, 12, 0, 0, 0, time.UTC).UnixMicro()
	account := id.NewFast()
	for i := range maxRefused + 1000 {
		client := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		own := 0
		for range refusalsEach + 5 {
			if r.count(account, audit.KeyInvalid, client, at) == nil {
				own++
			}
		}
		want := refusalsEach
		if i >= maxRefused {
			want += 5
		}
		if own != want {
			t.Fatalf("address %d has %d records of its own, want %d", i, own, want)
		}
	}
	if len(r.of) != maxRefused {
		t.Errorf("%d addresses are counted, want %d", len(r.of), maxRefused)
	}
	r.count(account, audit.KeyInvalid, netip.MustParseAddr("203.0.113.7"), at+time.Minute.Microseconds())
	if len(r.of) != 1 {
		t.Errorf("%d addresses are counted in the next minute, want 1", len(r.of))
	}
}

// Guarantee: refusals of the management API are counted too, and those of the same minute before and after a stop are
// all in the log.
func TestRefusalsSurviveAStop(t *testing.T) {
	b, accounts := newBusy(t, 1)
	minute := b.now.Truncate(time.Minute)
	record := func(w *Writer, n int) {
		for range n {
			w.Record(&audit.Record{
				AccountID: id.Format(id.Account, accounts[0]), Time: minute, Kind: audit.Authentication, Outcome: audit.KeyInvalid, Method: "GET", Path: "/v1/keys",
				ClientIP: "203.0.113.7", RequestID: id.New(id.Request),
			})
		}
	}
	record(b.writer, 200)
	if err := b.writer.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	next, err := New(b.writer.cfg)
	if err != nil {
		t.Fatal(err)
	}
	record(next, 100)
	if err := next.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if list, events := b.listed(accounts[0]); events != 300 || len(list) != 2*refusalsEach+1 {
		t.Errorf("%d records stand for %d events, want %d for 300", len(list), events, 2*refusalsEach+1)
	}
}
