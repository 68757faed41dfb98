package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/targetreport"
)

// targetHarness is a database with nodes that report targets.
type targetHarness struct{ *quotaHarness }

// claimant joins as a node, and returns the claimant of its lease.
func (h *targetHarness) claimant(node string) string {
	h.Helper()
	h.join(node, time.Hour)
	return h.claimantOf(node)
}

func (h *targetHarness) claimantOf(node string) (name string) {
	h.Helper()
	if err := h.db.writer.QueryRow(h.Context(), `SELECT `+claimantOf+` FROM nodes n WHERE name = $1`, node).Scan(&name); err != nil {
		h.Fatal(err)
	}
	return name
}

func (h *targetHarness) put(b *targetreport.Batch) {
	h.Helper()
	if err := h.db.PutTargetReports(h.Context(), b); err != nil {
		h.Fatal(err)
	}
}

func (h *targetHarness) flights(n balance.Name, url string) (texts []string) {
	h.Helper()
	list, err := h.db.TargetFlights(h.Context(), n, url)
	if err != nil {
		h.Fatal(err)
	}
	for _, f := range list {
		texts = append(texts, fmt.Sprintf("%s %d %t %d", f.Node, f.Number, f.LeftOut, f.InFlight))
	}
	return texts
}

var orders = balance.Name{Account: "acct_1", Gateway: "gw_1", Upstream: "default"}

func reportOf(n balance.Name, url, address string, inFlight int64) targetreport.Report {
	at := time.Date(2026, 7, 1, 12, 0, 0, 1000, time.UTC)
	return targetreport.Report{Name: n, URL: url, Address: address, State: "ejected", Draining: true, Degraded: true, Since: at, Until: at.Add(time.Minute), Reason: "connect", InFlight: inFlight, Requests: 7, Failures: 5, LastCheck: at}
}

// Guarantee: targets.md 3 and 6. What nodes with a lease have reported is read as it was written, by account, gateway and upstream;
// of a node without a report this is known, and the reports of a lease that has ended do not count and are removed in bounded steps.
func TestTargetReports(t *testing.T) {
	h := &targetHarness{&quotaHarness{newClusterHarness(t)}}
	a, b := h.claimant("a"), h.claimant("b")
	first, second := reportOf(orders, "http://one", "1:80", 3), reportOf(orders, "http://one", "2:80", 4)
	second.Until, second.LastCheck = time.Time{}, time.Time{}
	other := reportOf(balance.Name{Account: "acct_1", Gateway: "gw_1", Upstream: "next"}, "http://one", "1:80", 9)
	h.put(&targetreport.Batch{Claimant: a, Put: []targetreport.Report{first, second, other}, Ends: true, Number: 12})
	list, err := h.db.TargetReports(t.Context(), orders, b, 10)
	if err != nil || !slices.Equal(list, []targetreport.NodeReport{{Node: "a", Report: first}, {Node: "a", Report: second}}) {
		t.Fatalf("got %+v, %v; want the reports of a", list, err)
	}
	if list, err := h.db.TargetReports(t.Context(), orders, b, 1); err != nil || len(list) != 1 {
		t.Errorf("with a limit of 1: got %v, %v", list, err)
	}
	if list, err := h.db.TargetReports(t.Context(), orders, a, 10); err != nil || len(list) != 0 {
		t.Errorf("without its own: got %v, %v; want nothing", list, err)
	}
	stranger := orders
	stranger.Account = "acct_2"
	if list, err := h.db.TargetReports(t.Context(), stranger, b, 10); err != nil || len(list) != 0 {
		t.Errorf("for another account: got %v, %v; want nothing", list, err)
	}
	if got := h.flights(stranger, "http://one"); fmt.Sprint(got) != "[a 12 false 0 b -1 false 0]" {
		t.Errorf("for another account: got %v", got)
	}
	if got := h.flights(orders, "http://one"); fmt.Sprint(got) != "[a 12 false 7 b -1 false 0]" {
		t.Errorf("got %v, want 7 in flight at a, and no report of b", got)
	}

	first.InFlight = 0
	h.put(&targetreport.Batch{Claimant: a, Put: []targetreport.Report{first}, Remove: []targetreport.Key{{Name: orders, URL: "http://one", Address: "2:80"}}})
	h.put(&targetreport.Batch{Claimant: b, Ends: true, Number: 15, LeftOut: []string{"acct_1"}})
	if got := h.flights(orders, "http://one"); fmt.Sprint(got) != "[a 12 false 0 b 15 true 0]" {
		t.Errorf("got %v, want nothing in flight at a, and that b has left something out", got)
	}
	h.put(&targetreport.Batch{Claimant: b, Ends: true, Number: 16, LeftOut: []string{targetreport.AllAccounts}})
	if got := h.flights(orders, "http://one"); fmt.Sprint(got) != "[a 12 false 0 b 16 true 0]" {
		t.Errorf("got %v, want that b has left something of each account out", got)
	}

	h.exec(`UPDATE nodes SET epoch = epoch + 1 WHERE name = 'a'`)
	if got := h.flights(orders, "http://one"); fmt.Sprint(got) != "[a -1 false 0 b 16 true 0]" {
		t.Errorf("with the next lease of a: got %v, want no report of it", got)
	}
	h.exec(`UPDATE nodes SET state = 'expired' WHERE name = 'a'`)
	if got := h.flights(orders, "http://one"); fmt.Sprint(got) != "[b 16 true 0]" {
		t.Errorf("after the lease of a: got %v, want b alone", got)
	}
	for _, want := range []int{2, 1, 0} {
		if n, err := h.db.TrimTargetReports(t.Context(), 2); err != nil || n != want {
			t.Errorf("removed %d, %v; want %d", n, err, want)
		}
	}
	if got := h.flights(orders, "http://one"); fmt.Sprint(got) != "[b 16 true 0]" {
		t.Errorf("after the removal: got %v, want b alone", got)
	}
}

// Guarantee: the longest URLs and addresses can be reported, and a whole batch at once.
func TestTargetReportsOfAnySize(t *testing.T) {
	h := &targetHarness{&quotaHarness{newClusterHarness(t)}}
	a := h.claimant("a")
	var b targetreport.Batch
	b.Claimant, b.Ends = a, true
	for i := range 2000 {
		b.Put = append(b.Put, reportOf(orders, "http://"+strings.Repeat("é", 1020)+fmt.Sprint(i%256), fmt.Sprint(strings.Repeat("b", 250), i, ":80"), 1))
	}
	h.put(&b)
	h.put(&b)
	if list, err := h.db.TargetReports(t.Context(), orders, "", 3000); err != nil || len(list) != 2000 {
		t.Errorf("got %d reports, %v; want 2000", len(list), err)
	}
}
