package storetest

import (
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/requestlog"
)

// newRequest returns a request of an account at a time after the epoch.
func newRequest(accountID string, after time.Duration) requestlog.Record {
	at := epoch().Add(after)
	return requestlog.Record{AccountID: accountID, ID: id.NewAt(id.Request, at), Time: at, Method: "GET", Path: "/orders", ClientIP: "192.0.2.1", Status: 401, Decision: accesslog.KeyInvalid}
}

func (h *harness) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *harness) requests(accountID string, f requestlog.Filter, limit int, after string) (ids []string) {
	h.Helper()
	list, err := h.RequestRecords(h.Context(), accountID, f, limit, after)
	h.must(err)
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	return ids
}

// Guarantee: a record is stored with all fields.
func testRequestRoundTrip(h *harness) {
	rapid.Check(h.T, func(t *rapid.T) {
		days := []time.Time{time.Unix(0, 0).UTC(), epoch().Truncate(24 * time.Hour), time.Date(2038, 1, 19, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}
		at := rapid.SampledFrom(days).Draw(t, "day").Add(time.Duration(rapid.Int64Range(0, 24*3600*1e6-1).Draw(t, "microseconds")) * time.Microsecond)
		r := requestlog.Record{
			AccountID: id.New(id.Account), ID: id.NewAt(id.Request, at), GatewayID: text().Draw(t, "gateway"), RouteID: text().Draw(t, "route"), KeyID: text().Draw(t, "key"),
			Time: at, KeyPrefix: text().Draw(t, "prefix"), Method: text().Draw(t, "method"), Path: text().Draw(t, "path"), ClientIP: "2001:db8::1",
			Status: rapid.IntRange(400, 599).Draw(t, "status"), Duration: time.Duration(rapid.Int64().Draw(t, "duration")),
			Decision: accesslog.Limited, LimitScope: ratelimit.DailyScope, Limit: rapid.Int64().Draw(t, "limit"), Remaining: rapid.Int64().Draw(t, "remaining"),
			PassesAt: rapid.Int64().Draw(t, "passes"), UpstreamStatus: rapid.IntRange(0, 599).Draw(t, "upstream status"),
			Reason: accesslog.CertificateRejected, Detail: rapid.SampledFrom([]string{"", "\x00", "\x00\x01"}).Draw(t, "start") + text().Draw(t, "detail"), Host: text().Draw(t, "host"), Cost: string(rapid.SliceOf(rapid.Byte()).Draw(t, "cost")), AttemptList: string(rapid.SliceOf(rapid.Byte()).Draw(t, "attempts")),
		}
		if rapid.Bool().Draw(t, "token") {
			r.Token = &accesslog.Token{IssuerID: text().Draw(t, "issuer"), Subject: text().Draw(t, "subject")}
		}
		if err := h.AppendRequests(h.Context(), accesslog.BatchID{}, []requestlog.Record{r}, nil); err != nil {
			t.Fatal(err)
		}
		got, err := h.RequestRecord(h.Context(), r.AccountID, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "record", *got, r)
	})
}

// attempts returns the text of n attempts.
func attempts(n int) string {
	var b []byte
	for range n {
		b = accesslog.AppendAttempt(b, &accesslog.Attempt{Target: "10.0.0.1:8443", Result: "connect"})
	}
	return string(b)
}

// Guarantee: a list has exactly the matching requests of its account, newest first and page by page.
func testRequestList(h *harness) {
	const a, b = "acct_a", "acct_b"
	first, second, third := newRequest(a, 0), newRequest(a, time.Second), newRequest(a, 2*time.Second)
	first.GatewayID, second.GatewayID, third.GatewayID = "gw_1", "gw_2", "gw_2"
	first.RouteID, third.RouteID = "rt_1", "rt_2"
	second.KeyID, third.KeyID = "key_1", "key_1"
	third.Status = 429
	foreign := newRequest(b, time.Second)
	charged, failed := newRequest("acct_c", 0), newRequest("acct_c", time.Second)
	charged.Status, charged.Decision, charged.Cost = 200, accesslog.Forwarded, "cost"
	failed.Status, failed.Decision, failed.Cost = 503, accesslog.Forwarded, "cost"
	cut := charged
	retried, failedTwice, failedOnce, both := newRequest("acct_d", 0), newRequest("acct_d", time.Second), newRequest("acct_d", 2*time.Second), newRequest("acct_d", 3*time.Second)
	for r, n := range map[*requestlog.Record]int{&retried: 2, &failedTwice: 2, &failedOnce: 1, &both: 6} {
		r.Status, r.Decision, r.AttemptList = 200, accesslog.Forwarded, attempts(n)
	}
	failedTwice.Status, failedTwice.Decision, failedOnce.Status, failedOnce.Decision, both.Cost = 502, accesslog.Unreachable, 502, accesslog.Unreachable, "cost"
	limited := newRequest("acct_d", 4*time.Second)
	limited.Status, limited.Decision, limited.Limit = 429, accesslog.Limited, 50
	h.must(h.AppendRequests(h.Context(), accesslog.BatchID{}, []requestlog.Record{retried, failedTwice, failedOnce, both, limited}, nil))
	cut.ID, cut.Reason = newRequest("acct_c", 2*time.Second).ID, accesslog.KeyWasRevoked
	h.must(h.AppendRequests(h.Context(), accesslog.BatchID{}, []requestlog.Record{first, third, foreign, charged, failed, cut}, nil))
	h.must(h.AppendRequests(h.Context(), accesslog.BatchID{}, []requestlog.Record{second, first}, nil)) // an existing record is not changed

	for _, test := range []struct {
		what   string
		filter requestlog.Filter
		want   []string
	}{
		{"all", requestlog.Filter{}, []string{third.ID, second.ID, first.ID}},
		{"gateway", requestlog.Filter{GatewayID: "gw_2"}, []string{third.ID, second.ID}},
		{"route", requestlog.Filter{RouteID: "rt_1"}, []string{first.ID}},
		{"key", requestlog.Filter{KeyID: "key_1"}, []string{third.ID, second.ID}},
		{"key and status", requestlog.Filter{KeyID: "key_1", Status: 401}, []string{second.ID}},
		{"since is included", requestlog.Filter{Since: second.Time}, []string{third.ID, second.ID}},
		{"until is excluded", requestlog.Filter{Until: second.Time}, []string{first.ID}},
		{"between", requestlog.Filter{Since: second.Time, Until: third.Time}, []string{second.ID}},
		{"everything", requestlog.Filter{GatewayID: "gw_2", RouteID: "rt_2", KeyID: "key_1", Status: 429, Since: epoch(), Until: epoch().Add(time.Hour)}, []string{third.ID}},
		{"nothing", requestlog.Filter{GatewayID: "gw_1", KeyID: "key_1"}, nil},
	} {
		same(h, test.what, h.requests(a, test.filter, 10, ""), test.want)
	}
	same(h, "first page", h.requests(a, requestlog.Filter{}, 2, ""), []string{third.ID, second.ID})
	same(h, "second page", h.requests(a, requestlog.Filter{}, 2, second.ID), []string{first.ID})
	same(h, "another account", h.requests(b, requestlog.Filter{}, 10, ""), []string{foreign.ID})
	same(h, "without charged ones", h.requests("acct_c", requestlog.Filter{}, 10, ""), []string{cut.ID, failed.ID})
	same(h, "charged ones alone", h.requests("acct_c", requestlog.Filter{Result: requestlog.ResultCharged}, 10, ""), []string{charged.ID})
	same(h, "a result", h.requests("acct_c", requestlog.Filter{Result: "upstream_status"}, 10, ""), []string{cut.ID, failed.ID})
	same(h, "without retried ones", h.requests("acct_d", requestlog.Filter{}, 10, ""), []string{limited.ID, failedOnce.ID, failedTwice.ID})
	same(h, "retried ones alone", h.requests("acct_d", requestlog.Filter{Result: requestlog.ResultRetried}, 10, ""), []string{both.ID, failedTwice.ID, retried.ID})
	same(h, "charged ones with attempts", h.requests("acct_d", requestlog.Filter{Result: requestlog.ResultCharged}, 10, ""), []string{both.ID})
	for _, r := range []requestlog.Record{retried, failedTwice, failedOnce, both, limited} {
		got, err := h.RequestRecord(h.Context(), "acct_d", r.ID)
		h.must(err)
		same(h, "a record with attempts", *got, r)
		for _, f := range []requestlog.Filter{{}, {Result: requestlog.ResultRetried}, {Result: requestlog.ResultCharged}} {
			if is := slices.Contains(h.requests("acct_d", f, 10, ""), r.ID); f.Matches(&r) != is {
				h.Errorf("the filter %q of the store selects request %s: %t, and that of a stream: %t", f.Result, r.ID, is, !is)
			}
		}
	}
	for _, requestID := range []string{foreign.ID, id.New(id.Request), ""} {
		if _, err := h.RequestRecord(h.Context(), a, requestID); fault.CodeOf(err) != fault.NotFound {
			h.Errorf("reading request %q returned %v, want not found", requestID, err)
		}
	}
}

// Guarantee: each request has the number of requests left out in its second, and the numbers add up.
func testRequestsLeftOut(h *harness) {
	const a = "acct_a"
	one, other := newRequest(a, 0), newRequest(a, 2*time.Second)
	second := one.Time.Unix()
	h.must(h.AppendRequests(h.Context(), accesslog.BatchID{}, []requestlog.Record{one, other}, []requestlog.LeftOut{{AccountID: a, Second: second, Count: 3}}))
	h.must(h.AppendRequests(h.Context(), accesslog.BatchID{}, nil, []requestlog.LeftOut{{AccountID: a, Second: second, Count: 4}, {AccountID: "acct_b", Second: second + 2, Count: 1}}))
	for requestID, want := range map[string]int64{one.ID: 7, other.ID: 0} {
		got, err := h.RequestRecord(h.Context(), a, requestID)
		h.must(err)
		if got.LeftOut != want {
			h.Errorf("got %d left out, want %d", got.LeftOut, want)
		}
	}
}

// Guarantee: old requests are removed in batches, the oldest first. An engine may remove whole days.
func testRequestTrim(h *harness) {
	const a = "acct_a"
	var list []requestlog.Record
	var left []requestlog.LeftOut
	for i := range 5 {
		r := newRequest(a, time.Duration(i)*24*time.Hour)
		list, left = append(list, r), append(left, requestlog.LeftOut{AccountID: a, Second: r.Time.Unix(), Count: 1})
	}
	h.must(h.AppendRequests(h.Context(), accesslog.BatchID{}, list, left))
	more, err := h.TrimRequests(h.Context(), list[3].Time, 2)
	h.must(err)
	same(h, "after a batch", h.requests(a, requestlog.Filter{}, 10, ""), []string{list[4].ID, list[3].ID, list[2].ID})
	if !more {
		h.Error("after a full batch, more is false, want true")
	}
	more, err = h.TrimRequests(h.Context(), list[3].Time, 2)
	h.must(err)
	same(h, "after the last batch", h.requests(a, requestlog.Filter{}, 10, ""), []string{list[4].ID, list[3].ID})
	if more {
		h.Error("after a batch that is not full, more is true, want false")
	}
	if more, err = h.TrimRequests(h.Context(), list[4].Time, 0); err != nil || more {
		h.Errorf("a batch of 0 returned %v, %v; want false, nil", more, err)
	}
	got, err := h.RequestRecord(h.Context(), a, list[3].ID)
	h.must(err)
	if got.LeftOut != 1 {
		h.Error("the number left out in a kept second was removed")
	}
}

// requestBytes returns what the store says that the records of each account take.
func (h *harness) requestBytes() map[string]int64 {
	h.Helper()
	list, err := h.RequestBytes(h.Context())
	h.must(err)
	sizes := map[string]int64{}
	for _, a := range list {
		if a.Bytes != 0 {
			sizes[a.AccountID] = a.Bytes
		}
	}
	return sizes
}

// stored returns all records of an account, oldest first.
func (h *harness) stored(accountID string) []requestlog.Record {
	h.Helper()
	list, err := h.RequestRecords(h.Context(), accountID, requestlog.Filter{}, 100_000, "")
	h.must(err)
	slices.Reverse(list)
	return list
}

// sizeOf returns what records take.
func sizeOf(list []requestlog.Record) (n int64) {
	for i := range list {
		n += list[i].Size()
	}
	return n
}

// Guarantee: the counted bytes of each account are those of its stored records, whatever is added, added again, removed by
// retention and cut.
func testRequestBytes(h *harness) {
	accounts := []string{"acct_a", "acct_b", "acct_c"}
	next, known := 0, []requestlog.Record{}
	rapid.Check(h.T, func(t *rapid.T) {
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				var records []requestlog.Record
				for range rapid.IntRange(1, 8).Draw(t, "records") {
					r := newRequest(rapid.SampledFrom(accounts).Draw(t, "account"), time.Duration(next)*time.Hour)
					next++
					r.Path = "/" + strings.Repeat("x", rapid.IntRange(0, 2048).Draw(t, "path"))
					r.Cost = strings.Repeat("c", rapid.IntRange(0, 40).Draw(t, "cost"))
					records = append(records, r)
				}
				if len(known) > 0 && rapid.Bool().Draw(t, "again") {
					records = append(records, rapid.SampledFrom(known).Draw(t, "known"))
				}
				h.must(h.AppendRequests(h.Context(), accesslog.BatchID{}, records, nil))
				known = append(known, records...)
			},
			"retention": func(t *rapid.T) {
				before := epoch().Add(time.Duration(rapid.IntRange(0, next).Draw(t, "hours")) * time.Hour)
				for more := true; more; {
					var err error
					more, err = h.TrimRequests(h.Context(), before, 100)
					h.must(err)
				}
			},
			"cut": func(t *rapid.T) {
				most := requestlog.AccountBytes{AccountID: rapid.SampledFrom(accounts).Draw(t, "account"), Bytes: int64(rapid.IntRange(0, 20_000).Draw(t, "bytes"))}
				_, err := h.CutRequests(h.Context(), most, rapid.IntRange(1, 10).Draw(t, "limit"))
				h.must(err)
			},
			"": func(t *rapid.T) {
				sizes := h.requestBytes()
				for _, a := range accounts {
					if want := sizeOf(h.stored(a)); sizes[a] != want {
						t.Fatalf("the records of %s are counted with %d bytes, want %d", a, sizes[a], want)
					}
				}
			},
		})
	})
}

// Guarantee: a cut removes the oldest records of one account, as few as are needed and no more than the limit, and with them the
// counts of what was left out before them.
func testRequestCut(h *harness) {
	const a, b = "acct_a", "acct_b"
	var list, foreign []requestlog.Record
	var left []requestlog.LeftOut
	for i := range 20 {
		r := newRequest(a, time.Duration(i)*6*time.Hour)
		r.Path = "/" + strings.Repeat("x", 100*i)
		list, left = append(list, r), append(left, requestlog.LeftOut{AccountID: a, Second: r.Time.Unix(), Count: 1})
		foreign = append(foreign, newRequest(b, time.Duration(i)*6*time.Hour))
		left = append(left, requestlog.LeftOut{AccountID: b, Second: r.Time.Unix(), Count: 1})
	}
	h.must(h.AppendRequests(h.Context(), accesslog.BatchID{}, slices.Concat(list, foreign), left))
	for _, step := range []struct {
		what          string
		most          int64
		limit, remain int
		more          bool
	}{
		{"nothing is too much", sizeOf(list), 100, 20, false},
		{"a byte too much", sizeOf(list) - 1, 100, 19, false},
		{"exactly one record more", sizeOf(list[2:]), 100, 18, false},
		{"a byte more than a record", sizeOf(list[3:]) - 1, 100, 16, false},
		{"a limit", sizeOf(list[15:]), 3, 13, true},
		{"the rest", sizeOf(list[15:]), 100, 5, false},
		{"a limit of 0", 0, 0, 5, false},
		{"everything", 0, 100, 0, false},
		{"an empty log", 0, 100, 0, false},
	} {
		before := h.stored(a)
		cut, err := h.CutRequests(h.Context(), requestlog.AccountBytes{AccountID: a, Bytes: step.most}, step.limit)
		h.must(err)
		want := requestlog.Cut{Records: len(before) - step.remain, More: step.more}
		if want.Records > 0 {
			want.Newest = before[want.Records-1].Time
		}
		same(h, step.what, cut, want)
		got := h.stored(a)
		same(h, step.what+": number of records", len(got), step.remain)
		for i := range got {
			same(h, step.what+": record", got[i].ID, list[20-step.remain+i].ID)
			same(h, step.what+": left out", got[i].LeftOut, int64(1))
		}
	}
	same(h, "another account", h.stored(b)[0].LeftOut, int64(1))
	same(h, "records of another account", len(h.stored(b)), 20)
	same(h, "bytes", h.requestBytes(), map[string]int64{b: sizeOf(foreign)})
}

// Guarantee: callers that cut the same account at once, each between writes of its own, remove no more than they must: what remains
// has exactly the size that it may have.
func testRequestCutAtOnce(h *harness) {
	const a, callers = "acct_a", 4
	var list []requestlog.Record
	for i := range 600 {
		list = append(list, newRequest(a, time.Duration(i)*time.Second))
	}
	h.must(h.AppendRequests(h.Context(), accesslog.BatchID{}, list[:300], nil))
	most := requestlog.AccountBytes{AccountID: a, Bytes: sizeOf(list[:100])}
	done := make(chan error, callers)
	for n := range callers {
		go func() {
			done <- func() error {
				for i := range 15 {
					from := 300 + (n*15+i)*5
					if err := h.AppendRequests(h.Context(), accesslog.BatchID{}, list[from:from+5], nil); err != nil {
						return err
					}
					if _, err := h.CutRequests(h.Context(), most, 7); err != nil {
						return err
					}
				}
				for more := true; more; {
					cut, err := h.CutRequests(h.Context(), most, 7)
					if more = cut.More; err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			h.Error(err)
		}
	}
	if got := h.stored(a); len(got) != 100 || h.requestBytes()[a] != most.Bytes {
		h.Errorf("%d records with %d bytes remain, want 100 with %d", len(got), h.requestBytes()[a], most.Bytes)
	}
}
