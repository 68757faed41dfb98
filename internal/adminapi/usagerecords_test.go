package adminapi_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/usage/closing"
)

// usageFixture emits requests that count, and closes hours.
type usageFixture struct {
	*trafficFixture
	closer *closing.Closer
}

func newUsageFixture(s *server) *usageFixture {
	f := &usageFixture{trafficFixture: newTrafficFixture(s)}
	f.closer = must(closing.New(closing.Config{Store: s.db, Alone: true, Now: s.clock.Now, Flush: func(ctx context.Context) error {
		s.get("/v1/usage-records?state=open").want(200) // flushes
		return nil
	}}))(s.t)
	return f
}

// use emits a request that was charged.
func (f *usageFixture) use() {
	f.emit(func(r *accesslog.Record) {
		fine(r)
		r.SetPeriod(0, math.MaxInt64)
	})
}

// close moves the clock beyond the hour and closes it.
func (f *usageFixture) close(s *server) {
	s.t.Helper()
	s.clock.move(time.Hour + time.Minute)
	if err := f.closer.Step(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// usagePage is a page of usage records.
type usagePage struct {
	Data []map[string]any `json:"data"`
	Next *string          `json:"next_cursor"`
}

func (s *server) usage(query string) (p usagePage) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.get("/v1/usage-records?"+query).want(200).raw), &p); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// Guarantee (plans.md, section 8): what was used is open until its hour is closed, and final then, with the same identifier;
// only requests that were charged count; filters select by what a record says.
func TestUsageRecords(t *testing.T) {
	s := start(t)
	f := newUsageFixture(s)
	f.use()
	f.use()
	f.emit(limited)
	open, final := s.usage("state=open&meter=requests"), s.usage("")
	if len(open.Data) != 1 || len(final.Data) != 0 {
		t.Fatalf("got %d open and %d final records, want 1 and 0", len(open.Data), len(final.Data))
	}
	r := open.Data[0]
	if r["units"] != 2.0 || r["requests"] != 2.0 || r["sequence"] != 1.0 || r["state"] != "open" || r["key_id"] != f.key || r["gateway_id"] != f.gateway || r["owner"] != nil {
		t.Errorf("got %v", r)
	}
	f.close(s)
	if left := s.usage("state=open"); len(left.Data) != 0 {
		t.Errorf("%d records are open after the hour was closed", len(left.Data))
	}
	final = s.usage("meter=requests")
	if len(final.Data) != 1 || final.Data[0]["usage_id"] != r["usage_id"] || final.Data[0]["state"] != "final" || final.Data[0]["units"] != 2.0 {
		t.Fatalf("got %v, want the record that was open", final.Data)
	}
	from := r["period_start"].(string)
	for query, want := range map[string]int{
		"key_id=" + f.key: 1, "gateway_id=" + f.gateway: 1, "key_id=key_x": 0, "owner_id=own_x": 0, "meter=tokens": 0, "since=" + from: 1, "until=" + from: 0, "interval=1d": 0, "state=final": 1,
	} {
		if !strings.HasPrefix(query, "meter=") {
			query += "&meter=requests"
		}
		if got := s.usage(query); len(got.Data) != want {
			t.Errorf("%s selects %d records, want %d", query, len(got.Data), want)
		}
	}
	for query, field := range map[string]string{
		"state=closed": "state", "interval=1m": "interval", "since=now": "since", "format=xml": "format", "format=csv&limit=1": "limit", "cursor=x": "cursor",
	} {
		if r := s.get("/v1/usage-records?" + query).want(422); !strings.Contains(r.raw, `"field":"`+field+`"`) {
			t.Errorf("%s: got %s, want an error of %s", query, r.raw, field)
		}
	}
}

// Guarantee: an export has exactly the records of the list, in its order, in each format; the next export from its cursor has
// what came later, and nothing else.
func TestUsageExport(t *testing.T) {
	s := start(t)
	f := newUsageFixture(s)
	f.use()
	f.close(s)
	first := s.usage("limit=100").Data
	lines := s.get("/v1/usage-records?format=jsonl").want(200)
	if got := strings.Count(lines.raw, "\n"); got != len(first) || len(first) == 0 {
		t.Fatalf("got %d lines, want the %d records of the list", got, len(first))
	}
	for i, line := range strings.Split(strings.TrimSpace(lines.raw), "\n") {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil || fmt.Sprint(r) != fmt.Sprint(first[i]) {
			t.Errorf("line %d: got %s, want %v", i, line, first[i])
		}
	}
	rows, err := csv.NewReader(strings.NewReader(s.get("/v1/usage-records?format=csv").want(200).raw)).ReadAll()
	if err != nil || len(rows) != len(first)+1 || rows[0][0] != "usage_id" || rows[1][0] != first[0]["usage_id"] {
		t.Errorf("got the rows %q and the error %v", rows, err)
	}
	for i, line := range strings.Split(strings.TrimSpace(s.get("/v1/usage-records?format=cloudevents").want(200).raw), "\n") {
		var e struct {
			SpecVersion, ID, Type, Source, Subject, Time string
			Data                                         map[string]any
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.SpecVersion != "1.0" || e.ID != first[i]["usage_id"] || e.Type != "keygate.usage.v1" || !strings.HasPrefix(e.Source, "/accounts/acct_") || e.Subject != f.key || e.Time != first[i]["period_start"] || fmt.Sprint(e.Data) != fmt.Sprint(first[i]) {
			t.Errorf("line %d: got %s", i, line)
		}
	}
	cursor := lines.header.Get("X-Keygate-Cursor")
	if again := s.get("/v1/usage-records?format=jsonl&cursor=" + cursor).want(200); again.raw != "" {
		t.Errorf("nothing has become final since, and the next export has %s", again.raw)
	}
	s.get("/v1/usage-records?format=jsonl&state=final&interval=1h&cursor=" + cursor).want(200) // the defaults
	f.use()
	f.close(s)
	later := s.get("/v1/usage-records?format=jsonl&cursor=" + cursor).want(200)
	if got := strings.Count(later.raw, "\n"); got != len(first) || strings.Contains(later.raw, first[0]["usage_id"].(string)) {
		t.Errorf("got %s, want the %d new records", later.raw, len(first))
	}
	var paged []map[string]any
	for query := "limit=1"; ; {
		p := s.usage(query)
		paged = append(paged, p.Data...)
		if p.Next == nil {
			break
		}
		query = "limit=1&cursor=" + *p.Next
	}
	if len(paged) != 2*len(first) {
		t.Errorf("the pages have %d records, want %d", len(paged), 2*len(first))
	}
	s.get("/v1/usage-records?format=jsonl&meter=requests&cursor=" + cursor).want(422)
	s.get("/v1/usage-records?format=jsonl&state=open&cursor=" + cursor).want(422)
}
