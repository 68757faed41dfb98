package adminapi_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// trafficFixture is a gateway with a route and a key, and emits access records for
// them like the data plane.
type trafficFixture struct {
	s                       *server
	gateway, route, key     string
	account, gw, rt, caller [16]byte
}

// newTrafficFixture creates the fixture in the account default.
func newTrafficFixture(s *server) *trafficFixture {
	s.t.Helper()
	p := &trafficFixture{s: s, gateway: s.newGateway("")}
	p.route = s.post("/v1/gateways/"+p.gateway+"/routes", map[string]any{
		"path": "/orders", "methods": []string{"GET"}, "rate_limit": map[string]any{"sustained": "60/min", "daily": "1000/day"},
	}).want(201).text("route_id")
	p.key = s.newKey(nil).text("key_id")
	p.account, _ = id.Parse(id.Account, s.operator())
	p.gw, _ = id.Parse(id.Gateway, p.gateway)
	p.rt, _ = id.Parse(id.Route, p.route)
	p.caller, _ = id.Parse(id.Key, p.key)
	return p
}

// emit emits the access record of a request that starts now, and returns the
// identifier of the request.
func (p *trafficFixture) emit(change func(*accesslog.Record)) string { return p.emitCosts(change) }

// emitCosts is emit with costs.
func (p *trafficFixture) emitCosts(change func(*accesslog.Record), costs ...accesslog.Cost) string {
	var text []byte
	for i := range costs {
		text = accesslog.AppendCost(text, &costs[i])
	}
	return p.emitTexts(change, accesslog.Texts{Cost: string(text)})
}

// emitAttempts is emit with attempts.
func (p *trafficFixture) emitAttempts(change func(*accesslog.Record), attempts ...accesslog.Attempt) string {
	var text []byte
	for i := range attempts {
		text = accesslog.AppendAttempt(text, &attempts[i])
	}
	return p.emitTexts(change, accesslog.Texts{AttemptList: string(text)})
}

// emitUntried emits a record of a request that had no attempt.
func (p *trafficFixture) emitUntried(change func(*accesslog.Record), u *accesslog.Untried) string {
	return p.emitTexts(change, accesslog.Texts{AttemptList: string(accesslog.AppendUntried(nil, u))})
}

func (p *trafficFixture) emitTexts(change func(*accesslog.Record), t accesslog.Texts) string {
	now := p.s.clock.Now()
	r := accesslog.Record{
		Start: now.UnixMicro(), Duration: int64(4 * time.Millisecond), Upstream: int64(3 * time.Millisecond), BytesIn: 10, BytesOut: 200,
		Request: id.NewFastAt(now.UnixMilli()), Account: p.account, Gateway: p.gw, Route: p.rt, Key: p.caller,
		Client: netip.MustParseAddr("203.0.113.7").As16(), Status: 200, UpstreamStatus: 200, Method: accesslog.GET, Authenticated: true,
	}
	copy(r.Prefix[:], "kg_4tQx9Z")
	change(&r)
	t.Path = "/orders/17"
	p.s.shard.EmitTexts(&r, &t)
	return id.Format(id.Request, r.Request)
}

// Changes to the record of a request that succeeded, for other kinds of requests.

func fine(*accesslog.Record) {}

func limited(r *accesslog.Record) {
	r.Status, r.UpstreamStatus, r.Upstream, r.Result, r.BytesIn, r.BytesOut = 429, 0, -1, accesslog.Limited, 0, 100
	r.LimitScope, r.Limit, r.Remaining, r.ResetAt = uint8(ratelimit.RouteScope), 60, 0, r.Start/1e6+30
}
func unknown(r *accesslog.Record) {
	r.Status, r.UpstreamStatus, r.Upstream, r.Result, r.BytesIn, r.BytesOut = 401, 0, -1, accesslog.KeyInvalid, 0, 90
	r.Route, r.Key, r.Prefix = [16]byte{}, [16]byte{}, [10]byte{}
}
func broken(r *accesslog.Record) { r.Status, r.UpstreamStatus = 503, 503 }

const auditFields = "time kind outcome key_prefix key_id gateway_id method path client_ip request_id"

// tokenFields are the fields of a record of the audit log that CSV has at its end.
const tokenFields = " credential issuer_id subject"

// Guarantee: the audit log has the authentications of both planes and the changes, with
// the fields of the contract (section 7), newest first, up to the time of the call.
func TestAuditLogHasAuthenticationsAndChanges(t *testing.T) {
	s := start(t)
	p := newTrafficFixture(s)
	s.clock.move(time.Minute)
	good := p.emit(fine)
	s.clock.move(time.Second)
	bad := p.emit(unknown)
	list := s.get("/v1/audit-log?gateway_id=" + p.gateway + "&kind=authentication").want(200).data()
	if len(list) != 2 || list[0]["request_id"] != bad || list[1]["request_id"] != good {
		t.Fatalf("got %v, want requests %s and %s", list, bad, good)
	}
	for _, r := range list {
		wantFields(t, r, auditFields+tokenFields+" count")
	}
	want := map[string]any{
		"time": "2027-03-01T12:01:00Z", "kind": "authentication", "outcome": "success", "key_prefix": "kg_4tQx9Z", "key_id": p.key,
		"gateway_id": p.gateway, "method": "GET", "path": "/orders/17", "client_ip": "203.0.113.7", "request_id": good, "count": 1.0,
		"credential": "key", "issuer_id": nil, "subject": nil,
	}
	if fmt.Sprint(list[1]) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", list[1], want)
	}
	if r := list[0]; r["outcome"] != "key_invalid" || r["key_id"] != nil || r["key_prefix"] != nil {
		t.Errorf("got %v, want key_invalid without a key", r)
	}
	changes := s.get("/v1/audit-log?kind=management").want(200).data()
	wantFields(t, changes[0], auditFields+tokenFields+" count action target actor_key_id actor diff")
	if r := changes[0]; r["action"] != "key.create" || r["target"] != p.key || r["method"] != "POST" || r["path"] != "/v1/keys" || r["actor_key_id"] != r["key_id"] ||
		fmt.Sprint(r["diff"].(map[string]any)["name"]) != "[<nil> test]" {
		t.Errorf("got %v, want the creation of key %s by the calling key", r, p.key)
	}
	// A change that the server made itself has no actor.
	if last := changes[len(changes)-1]; last["actor_key_id"] != nil || last["request_id"] != "" {
		t.Errorf("got %v, want a change without actor and request", last)
	}
	s.clock.move(time.Second)
	s.do(request{method: "GET", path: "/v1/keys", key: "nonsense"}).want(401)
	if r := s.get("/v1/audit-log?outcome=key_invalid").want(200).data()[0]; r["path"] != "/v1/keys" || r["gateway_id"] != nil {
		t.Errorf("got %v, want the refused call of /v1/keys", r)
	}
	// The path is recorded percent-encoded as it was sent, so that it cannot contain a
	// line break, an escape sequence or a query.
	s.clock.move(time.Second)
	const odd = "/v1/keys/%0a%1b%5bm%3fq"
	s.get(odd).want(404)
	if r := s.get("/v1/audit-log").want(200).data()[0]; r["path"] != odd {
		t.Errorf("got path %v, want %s", r["path"], odd)
	}
}

// Guarantee: each filter of the audit log returns exactly the matching records, the
// pages have every record once, and a cursor is bound to its list and filters.
func TestAuditFiltersMatchExactly(t *testing.T) {
	s := start(t)
	p := newTrafficFixture(s)
	s.clock.move(time.Minute)
	for range 5 {
		p.emit(fine)
		s.clock.move(time.Second)
	}
	p.emit(unknown)
	actor := s.get("/v1/account").want(200).json["key"].(map[string]any)["key_id"].(string)
	for query, want := range map[string]int{
		"key_prefix=kg_4tQx9Z": 5, "key_id=" + p.key: 5, "gateway_id=" + p.gateway + "&kind=authentication": 6,
		"outcome=key_invalid": 1, "outcome=key_expired": 0, "actor=" + actor + "&since=2027-03-01T12:01:00Z": 0, "actor=" + actor: 3,
		"key_id=" + p.key + "&since=2027-03-01T12:01:01Z&until=2027-03-01T12:01:03Z": 2, // until is exclusive
		"key_id=" + p.key + "&since=2027-03-01":                                      5, "key_id=" + p.key + "&until=2027-03-01": 0, "kind=management": 5, "key_id=nobody": 0,
		"notable=true": 6, "notable=true&outcome=success": 5, "notable=true&kind=authentication": 1, "notable=true&key_id=" + p.key: 0, "notable=false&key_id=" + p.key: 5,
		"key_id=" + p.key + "&since=2027-03-01T13:01:01%2B01:00": 4,
	} {
		if n := len(s.get("/v1/audit-log?limit=100&" + query).want(200).data()); n != want {
			t.Errorf("%s: got %d records, want %d", query, n, want)
		}
		s.clock.move(time.Second)
	}
	seen := map[string]bool{}
	query := "/v1/audit-log?limit=2&key_id=" + p.key
	cursor, pages := "", 0
	for more := true; more; pages++ {
		r := s.get(query + cursor).want(200)
		for _, record := range r.data() {
			seen[record["request_id"].(string)] = true
		}
		var next string
		next, more = r.json["next_cursor"].(string)
		cursor = "&cursor=" + next
		if more {
			s.get("/v1/audit-log?limit=2"+cursor).refused(422, "validation_failed", "cursor")
			s.get("/v1/requests?limit=2"+cursor).refused(422, "validation_failed", "cursor")
		}
	}
	if len(seen) != 5 || pages != 3 {
		t.Errorf("got %d records on %d pages, want 5 on 3", len(seen), pages)
	}
	for query, field := range map[string]string{
		"kind=other": "kind", "notable=1": "notable", "outcome=fine": "outcome", "since=yesterday": "since", "until=2027-13-01": "until", "since=": "since",
		"since=2027-03-02&until=2027-03-01": "since", "since=2027-03-01&until=2027-03-01": "since", "key_id=": "key_id", "actor=": "actor", "action=x": "action",
		"kind=management&kind=management": "kind",
	} {
		s.get("/v1/audit-log?"+query).refused(422, "validation_failed", field)
	}
}

// Guarantee: the head of a log without sealed blocks has number 0.
func TestAuditHeadWithoutBlocksIsZero(t *testing.T) {
	s := start(t)
	if r := s.get("/v1/audit-log/head").want(200); r.raw != `{"number":0,"digest":null,"time":null,"unsealed":2,"sealed_by":"2027-03-01T12:10:00Z"}`+"\n" {
		t.Errorf("got %s, want number 0, digest and time null, and the creation of the first key and this call not sealed", r.raw)
	}
}

// Guarantee: the head says how many records are not sealed yet, and by when they are.
func TestAuditHeadSaysWhatIsNotSealed(t *testing.T) {
	s := start(t)
	newTrafficFixture(s).emit(fine)
	all := s.get("/v1/audit-log?limit=100").want(200).data()
	oldest, err := time.Parse(time.RFC3339Nano, all[len(all)-1]["time"].(string))
	if err != nil {
		t.Fatal(err)
	}
	head := s.get("/v1/audit-log/head").want(200).json
	by, err := time.Parse(time.RFC3339Nano, head["sealed_by"].(string))
	if err != nil || by.Sub(oldest) != 10*time.Minute {
		t.Errorf("got sealed_by %v (%v), want 10 minutes after %s", head["sealed_by"], err, oldest)
	}
	if n := head["unsealed"].(float64); int(n) != len(all)+1 { // with the call that listed them
		t.Errorf("got %v records that are not sealed, want %d", n, len(all)+1)
	}
}

const trafficFields = "start group requests status_2xx status_3xx status_4xx status_5xx limited unauthorized forbidden upstream_errors bytes_in bytes_out meters latency_ms upstream_latency_ms"

// Guarantee: the traffic report counts all requests up to the time of the call, starts
// with since, ends before until, and has zeros for empty intervals.
func TestTrafficCountsAllRequests(t *testing.T) {
	s := start(t)
	p := newTrafficFixture(s)
	p.emit(fine)
	s.clock.move(2 * time.Minute) // 12:02
	for _, kind := range []func(*accesslog.Record){fine, fine, limited, unknown, broken} {
		p.emit(kind)
	}
	s.clock.move(time.Minute)
	report := func(t *testing.T, query string) []map[string]any {
		t.Helper()
		s := s.in(t)
		s.clock.move(time.Millisecond)
		r := s.get("/v1/reports/traffic?" + query).want(200)
		wantFields(t, r.json, "data")
		for _, row := range r.data() {
			wantFields(t, row, trafficFields)
		}
		return r.data()
	}
	day := "interval=1h&since=2027-03-01&until=2027-03-02"
	t.Run("rows are intervals with the sums of their requests", func(t *testing.T) {
		rows := report(t, "interval=1m&since=2027-03-01T12:00:00Z&until=2027-03-01T12:03:00Z")
		if len(rows) != 3 {
			t.Fatalf("got %d rows, want 3: %v", len(rows), rows)
		}
		for i, want := range []map[string]any{
			{"start": "2027-03-01T12:00:00Z", "requests": 1.0, "status_2xx": 1.0, "bytes_in": 10.0, "bytes_out": 200.0, "group": nil},
			{"start": "2027-03-01T12:01:00Z", "requests": 0.0, "status_2xx": 0.0, "bytes_in": 0.0, "bytes_out": 0.0},
			{
				"start": "2027-03-01T12:02:00Z", "requests": 5.0, "status_2xx": 2.0, "status_3xx": 0.0, "status_4xx": 2.0, "status_5xx": 1.0, "limited": 1.0,
				"unauthorized": 1.0, "forbidden": 0.0, "upstream_errors": 1.0, "bytes_in": 30.0, "bytes_out": 790.0,
			},
		} {
			for name, v := range want {
				if rows[i][name] != v {
					t.Errorf("row %d: got %s = %v, want %v", i, name, rows[i][name], v)
				}
			}
		}
		latency := rows[2]["latency_ms"].(map[string]any)
		wantFields(t, latency, "p50 p90 p95 p99")
		if p99 := latency["p99"].(float64); p99 < 3.9 || p99 > 4.1 {
			t.Errorf("got p99 = %v ms, want 3.9 to 4.1", p99)
		}
		if p50 := rows[1]["latency_ms"].(map[string]any)["p50"]; p50 != 0.0 {
			t.Errorf("got p50 = %v in an empty interval, want 0", p50)
		}
	})
	t.Run("group_by returns separate rows", func(t *testing.T) {
		for query, want := range map[string][]string{
			"gateway": {p.gateway + " 6"}, "route": {p.route + " 5", "<nil> 1"}, "key": {p.key + " 5", "<nil> 1"}, "status": {"200 3", "401 1", "429 1", "503 1"},
		} {
			rows := report(t, day+"&group_by="+query)
			got := groupCounts(rows)
			for _, w := range want {
				if !strings.Contains(got, w) {
					t.Errorf("grouped by %s: got %s, want %s", query, got, w)
				}
			}
			if query == "key" && rows[0]["latency_ms"] != nil {
				t.Errorf("grouped by key: got %v, want no latencies", rows[0])
			}
		}
	})
	t.Run("filters restrict the requests", func(t *testing.T) {
		for query, want := range map[string]float64{
			"": 6, "&gateway_id=" + p.gateway: 6, "&route_id=" + p.route: 5, "&key_id=" + p.key: 5, "&gateway_id=gw_none": 0, "&key_id=x": 0,
		} {
			sum := 0.0
			for _, r := range report(t, day+query) {
				sum += r["requests"].(float64)
			}
			if sum != want {
				t.Errorf("%q: got %v requests, want %v", query, sum, want)
			}
		}
	})
	t.Run("the default is the last 24 hours", func(t *testing.T) {
		// The default is the last 24 hours in intervals of 1h, including the current one.
		if rows := report(t, ""); len(rows) < 24 || rows[len(rows)-1]["requests"] != 6.0 {
			t.Errorf("got %d rows, the last one %v, want at least 24, the last one with 6 requests", len(rows), rows[len(rows)-1])
		}
	})
	t.Run("another account sees nothing", func(t *testing.T) {
		s := s.in(t)
		stranger := s.newAccount("other")
		for _, query := range []string{"&group_by=gateway&gateway_id=" + p.gateway, "&group_by=key", "&route_id=" + p.route, ""} {
			r := s.do(request{method: "GET", path: "/v1/reports/traffic?" + day + query, key: stranger}).want(200)
			if got := groupCounts(r.data()); got != "" || strings.Contains(r.raw, p.key) {
				t.Errorf("another account sees %s, want nothing", got)
			}
		}
	})
	t.Run("the top of a report adds up its intervals", func(t *testing.T) {
		s := s.in(t)
		rows := s.get("/v1/reports/top?" + day + "&group_by=route").want(200).data()
		if len(rows) == 0 || rows[0]["group"] != p.route || rows[0]["requests"].(float64) < 4 {
			t.Errorf("got %v, want the route %s first", rows, p.route)
		}
		if rows := s.get("/v1/reports/top?" + day + "&group_by=key&order=refused&limit=1").want(200).data(); len(rows) != 1 {
			t.Errorf("got %v, want one key", rows)
		}
		stranger := s.newAccount("other-top")
		if r := s.do(request{method: "GET", path: "/v1/reports/top?" + day, key: stranger}).want(200); len(r.data()) != 0 {
			t.Errorf("another account sees %s, want nothing", r.raw)
		}
		for query, field := range map[string]string{"group_by=status": "group_by", "order=name": "order", "limit=101": "limit", "limit=0": "limit", "since=now": "since"} {
			s.get("/v1/reports/top?"+query).refused(422, "validation_failed", field)
		}
	})
	t.Run("an invalid parameter is refused", func(t *testing.T) {
		for query, field := range map[string]string{
			"interval=5m": "interval", "group_by=colour": "group_by", "since=now": "since", "since=2027-03-02&until=2027-03-01": "since", "since=2028-01-01": "since",
			"interval=1m&since=2027-02-28&until=2037-03-01": "since", "route_id=": "route_id", "limit=5": "limit",
		} {
			s.in(t).get("/v1/reports/traffic?"+query).refused(422, "validation_failed", field)
		}
	})
}

// Guarantee: identity.md, 1. Reports have rows for the subjects of valid tokens, of each issuer by itself, without latencies. Requests
// with keys and with tokens that were refused are not in them. Filters by which subjects are not counted are refused with their
// name. Another account sees none of it, also if it names the gateway.
func TestTrafficBySubject(t *testing.T) {
	s := start(t)
	p := newTrafficFixture(s)
	const one, two = "iss_01jz8y5c3te9b8r2m6q4v7x0aa", "iss_01jz8y5c3te9b8r2m6q4v7x0bb"
	withToken := func(change func(*accesslog.Record)) func(*accesslog.Record) {
		return func(r *accesslog.Record) {
			r.Key, r.Prefix = [16]byte{}, [10]byte{}
			change(r)
		}
	}
	for range 2 {
		p.emitTexts(withToken(fine), accesslog.Texts{Token: &accesslog.Token{IssuerID: one, Subject: "ada"}})
	}
	p.emitTexts(withToken(limited), accesslog.Texts{Token: &accesslog.Token{IssuerID: one, Subject: "ada"}})
	p.emitTexts(withToken(fine), accesslog.Texts{Token: &accesslog.Token{IssuerID: two, Subject: "ada"}})
	p.emitTexts(withToken(broken), accesslog.Texts{Token: &accesslog.Token{IssuerID: two, Subject: "robot"}})
	p.emitTexts(withToken(fine), accesslog.Texts{Token: &accesslog.Token{IssuerID: two}})
	p.emit(fine)
	s.clock.move(time.Minute)
	since := "since=2027-03-01T12:00:00Z&"
	for _, query := range []string{"group_by=subject", "group_by=subject&gateway_id=" + p.gateway} {
		got := map[string]float64{}
		for _, row := range s.get("/v1/reports/traffic?" + since + query).want(200).data() {
			got[fmt.Sprint(row["issuer_id"], " ", row["group"])] += row["requests"].(float64)
			if row["latency_ms"] != nil || row["upstream_latency_ms"] != nil {
				t.Errorf("%s: got the row %v, want no latencies", query, row)
			}
		}
		if want := (map[string]float64{one + " ada": 3, two + " ada": 1, two + " robot": 1}); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
	top := s.get("/v1/reports/top?" + since + "group_by=subject&limit=1").want(200).data()
	if len(top) != 1 || top[0]["group"] != "ada" || top[0]["issuer_id"] != one || top[0]["requests"] != 3.0 || top[0]["limited"] != 1.0 || top[0]["gateway_id"] != nil {
		t.Errorf("got the top %v, want 3 requests of ada of the first issuer", top)
	}
	for _, row := range s.get("/v1/reports/traffic?" + since + "group_by=gateway").want(200).data() {
		if _, has := row["issuer_id"]; has {
			t.Errorf("got the row %v, want no issuer", row)
		}
	}
	for query, field := range map[string]string{"route_id=" + p.route: "route_id", "key_id=" + p.key: "key_id", "target=a": "target", "upstream=a&gateway_id=" + p.gateway: "upstream"} {
		for _, report := range []string{"traffic", "top"} {
			s.get("/v1/reports/"+report+"?group_by=subject&"+query).refused(422, "validation_failed", field)
		}
	}
	stranger := s.newAccount("other")
	for _, query := range []string{"group_by=subject", "group_by=subject&gateway_id=" + p.gateway} {
		for _, report := range []string{"traffic", "top"} {
			if rows := s.do(request{method: "GET", path: "/v1/reports/" + report + "?" + since + query, key: stranger}).want(200).data(); len(rows) > 0 {
				t.Errorf("%s by %s: another account got %v", report, query, rows)
			}
		}
	}
}

// Guarantee: targets.md, 9. Reports have rows for upstreams and targets, with latencies, of requests that were sent to them, and
// filters for both. What is not counted together is refused, with the parameter to leave out or to give. Another account sees none
// of it, also if it names the gateway.
func TestTrafficByTarget(t *testing.T) {
	s := start(t)
	p := newTrafficFixture(s)
	const first, second = "10.0.0.1:8443", "10.0.0.2:8443"
	for upstream, targets := range map[string][]string{"default": {first, first, second}, "next": {second}} {
		for _, target := range targets {
			p.emitTexts(fine, accesslog.Texts{UpstreamName: upstream, Target: target})
		}
	}
	p.emitTexts(broken, accesslog.Texts{UpstreamName: "next", Target: second})
	p.emit(limited)
	s.clock.move(time.Minute)
	since := "since=2027-03-01T12:00:00Z&"
	for query, want := range map[string]string{
		"group_by=upstream": "<nil> 1 default 3 next 2", "group_by=target": "<nil> 1 " + first + " 2 " + second + " 3",
		"group_by=target&upstream=default&gateway_id=" + p.gateway: first + " 2 " + second + " 1", "group_by=upstream&target=" + second: "default 1 next 2",
		"group_by=status&target=" + second: "200 2 503 1", "group_by=gateway&target=" + first: p.gateway + " 2",
		"target=" + first: "<nil> 2", "target=" + first + "0": "", "upstream=none&gateway_id=" + p.gateway: "",
	} {
		rows := s.get("/v1/reports/traffic?" + since + query).want(200).data()
		if got := groupCounts(rows); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
		for _, row := range rows {
			if l, _ := row["latency_ms"].(map[string]any); l == nil || row["requests"] != 0.0 && l["p95"].(float64) <= 0 {
				t.Errorf("%s: got the row %v, want latencies", query, row)
			}
		}
	}
	for query, want := range map[string]string{
		"group_by=target&order=errors": second + " 3", "group_by=upstream&limit=1": "default 3", "group_by=target&limit=1&target=" + first: first + " 2",
	} {
		rows := s.get("/v1/reports/top?" + since + query).want(200).data()
		if got := groupCounts(rows); got != want || rows[0]["gateway_id"] != nil {
			t.Errorf("top %s: got %v, want %s without a gateway", query, rows, want)
		}
	}
	for query, field := range map[string]string{
		"group_by=sides": "group_by", "upstream=": "upstream", "target=": "target", "upstream=default": "gateway_id",
		"target=a&route_id=" + p.route: "route_id", "target=a&key_id=" + p.key: "key_id", "target=a&group_by=key": "group_by", "upstream=a&gateway_id=x&group_by=route": "group_by",
		"group_by=target&route_id=" + p.route: "route_id", "group_by=upstream&key_id=" + p.key: "key_id",
	} {
		s.get("/v1/reports/traffic?"+query).refused(422, "validation_failed", field)
		s.get("/v1/reports/top?"+query).refused(422, "validation_failed", field)
	}
	stranger := s.newAccount("other")
	for _, query := range []string{"group_by=target", "group_by=upstream&gateway_id=" + p.gateway, "group_by=gateway&target=" + first, "group_by=target&upstream=next&gateway_id=" + p.gateway} {
		for _, report := range []string{"traffic", "top"} {
			r := s.do(request{method: "GET", path: "/v1/reports/" + report + "?" + since + query, key: stranger}).want(200)
			if got := groupCounts(r.data()); got != "" || strings.Contains(r.raw, "10.0.0") {
				t.Errorf("%s of another account by %s: got %s, want nothing", report, query, r.raw)
			}
		}
	}
}

// Guarantee: the rows of reports, and the sums of what has most, have the units that requests were charged by the costs of
// their routes, by meter.
func TestTrafficCountsCosts(t *testing.T) {
	s := start(t)
	p := newTrafficFixture(s)
	p.emitCosts(fine, accesslog.Cost{Meter: "tokens", Units: 1204, Reserved: 2000}, accesslog.Cost{Meter: "cents", Units: 3})
	s.clock.move(2 * time.Minute)
	p.emitCosts(broken, accesslog.Cost{Meter: "tokens", Units: 16000, Unknown: "incomplete"}, accesslog.Cost{Meter: "cents", Reserved: 3})
	p.emit(limited)
	s.clock.move(time.Minute)
	for query, want := range map[string]string{
		"traffic?interval=1m&since=2027-03-01T12:00:00Z":                                    "map[cents:3 tokens:1204], map[], map[tokens:16000], map[]",
		"traffic?interval=1h&since=2027-03-01T12:00:00Z&group_by=key&key_id=" + p.key:       "map[cents:3 tokens:17204]",
		"traffic?interval=1h&since=2027-03-01T12:00:00Z&group_by=route&route_id=" + p.route: "map[cents:3 tokens:17204]",
		"traffic?interval=1h&since=2027-03-01T12:00:00Z&group_by=status":                    "map[cents:3 tokens:1204], map[], map[tokens:16000]",
		"top?interval=1h&since=2027-03-01T12:00:00Z&group_by=key":                           "map[cents:3 tokens:17204]",
	} {
		var got []string
		for _, r := range s.get("/v1/reports/" + query).want(200).data() {
			got = append(got, fmt.Sprint(r["meters"]))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: got %v, want %s", query, got, want)
		}
	}
}

// groupCounts returns the groups that have requests, with their number of requests.
func groupCounts(rows []map[string]any) string {
	out := ""
	for _, r := range rows {
		if r["requests"] != 0.0 {
			out += fmt.Sprint(r["group"], " ", r["requests"], " ")
		}
	}
	return strings.TrimSpace(out)
}

const (
	requestFields  = "request_id time gateway_id route_id key_id key_prefix credential issuer_id subject method path client_ip host status duration_ms decision left_out cost attempts not_tried not_tried_count all_unhealthy side side_reason"
	decisionFields = "check code message limit_scope limit_name limit remaining passes_at upstream_status reason by_default nearest_routes detail"
)

// Guarantee: the request log tells what a request was charged, and how that came about: also of requests that were neither
// refused nor failed, by their identifiers, with result=charged and in streams of these.
func TestRequestLogHasCosts(t *testing.T) {
	s := start(t)
	p := newTrafficFixture(s)
	stream, _ := s.openStream(t, "result=charged", s.admin)
	known := accesslog.Cost{Meter: "tokens", Units: 1204, Reserved: 2000, Read: "prompt_tokens 1,000 × 1, completion_tokens 51 × 4"}
	passed := p.emitCosts(fine, known, accesslog.Cost{Meter: "cents", Units: 3, Reserved: 3})
	s.clock.move(time.Second)
	failed := p.emitCosts(broken, accesslog.Cost{Meter: "tokens", Units: 16000, Reserved: 1, Unknown: "incomplete"})
	for query, want := range map[string]string{"": failed, "?result=charged": passed, "?result=upstream_status": failed} {
		if list := s.get("/v1/requests" + query).want(200).data(); len(list) != 1 || list[0]["request_id"] != want {
			t.Errorf("%q: got %v, want the request %s", query, list, want)
		}
	}
	for requestID, want := range map[string]any{
		passed: map[string]any{
			"tokens": map[string]any{"units": 1204.0, "reserved": 2000.0, "unknown": nil, "explanation": "1,204 tokens: prompt_tokens 1,000 × 1, completion_tokens 51 × 4; reserved 2,000"},
			"cents":  map[string]any{"units": 3.0, "reserved": 3.0, "unknown": nil, "explanation": "3 cents: reserved 3"},
		},
		failed: map[string]any{
			"tokens": map[string]any{"units": 16000.0, "reserved": 1.0, "unknown": "incomplete", "explanation": "16,000 tokens: unknown, because the exchange did not complete; reserved 1"},
		},
	} {
		if got := s.get("/v1/requests/" + requestID).want(200).json["cost"]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
	event, _ := stream.line()
	data, _ := stream.line()
	if event != "event: request" || !strings.Contains(data, `"request_id":"`+passed+`"`) || !strings.Contains(data, "1,204 tokens: prompt_tokens 1,000 × 1") {
		t.Errorf("got %q %q, want the request %s with its cost", event, data, passed)
	}
	s.clock.move(time.Second)
	p.emit(unknown)
	if got := s.get("/v1/requests?result=key_invalid").want(200).data(); len(got) != 1 || got[0]["cost"] != nil {
		t.Errorf("got %v, want one request with the cost null", got)
	}
}

// Guarantee: targets.md, section 9: the request log has the attempts of a request in words: of failed ones in the list, and of
// others with result=retried and by their identifiers.
func TestRequestLogHasAttempts(t *testing.T) {
	s := start(t)
	p := newTrafficFixture(s)
	at := time.Date(2026, 5, 6, 12, 0, 3, 0, time.UTC).UnixMilli()
	dead := accesslog.Attempt{Target: "10.0.0.1:8443", Result: "connect", Reason: accesslog.ConnectionRefused, Took: 310 * time.Microsecond, Ejected: at, EjectedUntil: at + 10_000, Failures: 5}
	passed := p.emitAttempts(fine, dead, accesslog.Attempt{Target: "10.0.0.2:8443", Result: "ok", Status: 200, Took: 4 * time.Millisecond})
	s.clock.move(time.Second)
	failed := p.emitAttempts(broken, accesslog.Attempt{Target: "10.0.0.1:8443", Result: "503", Status: 503, Took: time.Millisecond})
	for query, want := range map[string]string{"": failed, "?result=retried": passed} {
		if list := s.get("/v1/requests" + query).want(200).data(); len(list) != 1 || list[0]["request_id"] != want {
			t.Errorf("%q: got %v, want the request %s", query, list, want)
		}
	}
	if list := s.get("/v1/requests?result=charged").want(200).data(); len(list) != 0 {
		t.Errorf("got %v, want no requests with a cost", list)
	}
	for requestID, want := range map[string]any{
		passed: []any{
			map[string]any{
				"target": "10.0.0.1:8443", "result": "connect", "reason": "connection_refused", "status": nil, "duration_ms": 0.31,
				"ejected":     map[string]any{"at": "2026-05-06T12:00:03Z", "until": "2026-05-06T12:00:13Z", "failures": 5.0},
				"explanation": "attempt 1 → 10.0.0.1:8443: connection refused (ejected 12:00:03 after 5 failures, for 10 s)",
			},
			map[string]any{"target": "10.0.0.2:8443", "result": "ok", "reason": nil, "status": 200.0, "duration_ms": 4.0, "ejected": nil, "explanation": "attempt 2 → 10.0.0.2:8443: 200 in 4 ms"},
		},
		failed: []any{map[string]any{
			"target": "10.0.0.1:8443", "result": "503", "reason": nil, "status": 503.0, "duration_ms": 1.0, "ejected": nil, "explanation": "attempt 1 → 10.0.0.1:8443: 503 in 1 ms",
		}},
	} {
		if got := s.get("/v1/requests/" + requestID).want(200).json["attempts"]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
	s.clock.move(time.Second)
	p.emit(unknown)
	if got := s.get("/v1/requests?result=key_invalid").want(200).data(); len(got) != 1 || got[0]["attempts"] != nil || got[0]["not_tried"] != nil {
		t.Errorf("got %v, want one request with the attempts null", got)
	}
}

// Guarantee: targets.md, section 9: the request log has the targets that a request was not sent to because of their state, in words.
func TestRequestLogHasTargetsThatWereNotTried(t *testing.T) {
	s := start(t)
	p := newTrafficFixture(s)
	at := time.Date(2026, 5, 6, 12, 0, 3, 0, time.UTC).UnixMilli()
	id := p.emitUntried(broken, &accesslog.Untried{Count: 7, Targets: []accesslog.UntriedTarget{
		{Target: "10.0.0.3:8443", State: accesslog.StateEjected, Reason: "connect", Since: at, Until: at + 10_000, Failures: 5},
		{Target: "10.0.0.4:8443", State: accesslog.StateUnhealthy, Reason: "status 503", Since: at},
		{Target: "10.0.0.5:8443", State: accesslog.StateDraining},
	}})
	got := s.get("/v1/requests/" + id).want(200).json
	want := []any{
		map[string]any{
			"target": "10.0.0.3:8443", "state": "ejected", "reason": "connect", "since": "2026-05-06T12:00:03Z", "until": "2026-05-06T12:00:13Z", "failures": 5.0,
			"explanation": "10.0.0.3:8443 (ejected 12:00:03 after 5 failures, for 10 s)",
		},
		map[string]any{
			"target": "10.0.0.4:8443", "state": "unhealthy", "reason": "status 503", "since": "2026-05-06T12:00:03Z", "until": nil, "failures": nil,
			"explanation": "10.0.0.4:8443 (unhealthy since 12:00:03: status 503)",
		},
		map[string]any{"target": "10.0.0.5:8443", "state": "draining", "reason": nil, "since": nil, "until": nil, "failures": nil, "explanation": "10.0.0.5:8443 (draining)"},
	}
	if fmt.Sprint(got["not_tried"]) != fmt.Sprint(want) || got["not_tried_count"] != 7.0 || got["all_unhealthy"] != false || got["attempts"] != nil {
		t.Errorf("got  %v\nwant %v of 7", got, want)
	}
	s.clock.move(time.Second)
	id = p.emitUntried(broken, &accesslog.Untried{AllUnhealthy: true})
	if got := s.get("/v1/requests/" + id).want(200).json; got["all_unhealthy"] != true || got["not_tried"] != nil || got["not_tried_count"] != 0.0 {
		t.Errorf("got %v, want that all were unhealthy", got)
	}
}

// Guarantee: the request log has each refused or failed request with its decision, and
// no other request.
func TestRequestLogHasRefusedAndFailedRequests(t *testing.T) {
	s := start(t)
	p := newTrafficFixture(s)
	s.clock.move(time.Minute)
	passed := p.emit(fine)
	s.clock.move(time.Second)
	over := p.emit(limited)
	s.clock.move(time.Second)
	keyless := p.emit(unknown)
	s.clock.move(time.Second)
	failed := p.emit(broken)
	list := s.get("/v1/requests").want(200).data()
	if len(list) != 3 || list[0]["request_id"] != failed || list[1]["request_id"] != keyless || list[2]["request_id"] != over {
		t.Fatalf("got %v, want requests %s, %s and %s", list, failed, keyless, over)
	}
	for _, r := range list {
		wantFields(t, r, requestFields)
		wantFields(t, r["decision"].(map[string]any), decisionFields)
	}
	t.Run("a request has its decision", func(t *testing.T) {
		s := s.in(t)
		r := s.get("/v1/requests/" + over).want(200).json
		d := r["decision"].(map[string]any)
		for name, want := range map[string]any{
			"gateway_id": p.gateway, "route_id": p.route, "key_id": p.key, "key_prefix": "kg_4tQx9Z", "method": "GET", "path": "/orders/17",
			"client_ip": "203.0.113.7", "status": 429.0, "time": "2027-03-01T12:01:01Z", "duration_ms": 4.0,
		} {
			if r[name] != want {
				t.Errorf("got %s = %v, want %v", name, r[name], want)
			}
		}
		for name, want := range map[string]any{
			"check": "limit", "code": "rate_limit_exceeded", "limit_scope": "route", "limit": 60.0, "remaining": 0.0, "passes_at": "2027-03-01T12:01:31Z", "upstream_status": nil,
		} {
			if d[name] != want {
				t.Errorf("got decision.%s = %v, want %v", name, d[name], want)
			}
		}
		if d := list[0]["decision"].(map[string]any); d["upstream_status"] != 503.0 || d["limit"] != nil {
			t.Errorf("got decision %v, want upstream_status 503 and no limit", d)
		}
		if d := list[1]["decision"].(map[string]any); d["code"] != "key_invalid" || list[1]["key_id"] != nil {
			t.Errorf("got %v, want code key_invalid and no key_id", list[1])
		}
	})
	t.Run("filters restrict the list", func(t *testing.T) {
		s := s.in(t)
		for query, want := range map[string]int{
			"status=429": 1, "status=403": 0, "key_id=" + p.key: 2, "route_id=" + p.route: 2, "gateway_id=" + p.gateway: 3,
			"since=2027-03-01T12:01:02Z": 2, "until=2027-03-01T12:01:02Z": 1,
			"until=0001-01-01": 0, "since=0001-01-01T00:00:00Z": 3,
		} {
			if n := len(s.get("/v1/requests?" + query).want(200).data()); n != want {
				t.Errorf("%s: got %d requests, want %d", query, n, want)
			}
		}
	})
	t.Run("a request that passed is not found", func(t *testing.T) {
		s := s.in(t)
		for _, missing := range []string{passed, "req_00000000000000000000000000", "x"} {
			s.get("/v1/requests/"+missing).refused(404, "not_found", "")
		}
	})
	t.Run("another account sees nothing", func(t *testing.T) {
		s := s.in(t)
		s.clock.move(time.Second)
		stranger := s.newAccount("other")
		s.do(request{method: "GET", path: "/v1/requests/" + over, key: stranger}).refused(404, "not_found", "")
		if n := len(s.do(request{method: "GET", path: "/v1/requests", key: stranger}).want(200).data()); n != 0 {
			t.Errorf("another account sees %d requests, want 0", n)
		}
	})
	t.Run("an invalid parameter is refused", func(t *testing.T) {
		s := s.in(t)
		for query, field := range map[string]string{"status=200": "status", "status=0429": "status", "status=all": "status", "since=x": "since", "kind=x": "kind"} {
			s.get("/v1/requests?"+query).refused(422, "validation_failed", field)
		}
	})
}

// Guarantee: the list of limits has every limit of a gateway with its current level, in
// pages.
func TestLimitsAreListedWithTheirLevels(t *testing.T) {
	s := start(t)
	p := newTrafficFixture(s)
	path := "/v1/gateways/" + p.gateway + "/limits"
	list := s.get(path).want(200).data()
	scopes := map[any]map[string]any{}
	for _, l := range list {
		wantFields(t, l, "limit_scope limit_name route_id key_id owner_id address limit remaining reset_at")
		scopes[l["limit_scope"]] = l
	}
	if l := scopes["route"]; l == nil || l["route_id"] != p.route || l["key_id"] != nil || l["limit"] != 60.0 || l["remaining"] != 60.0 {
		t.Errorf("got route limit %v, want 60 of 60", l)
	}
	if l := scopes["daily"]; l == nil || l["route_id"] != p.route || l["limit"] != 1000.0 {
		t.Errorf("got daily limit %v, want capacity 1000", l)
	}
	if l := scopes["global"]; l == nil || l["route_id"] != nil {
		t.Errorf("got global limit %v, want one without route", l)
	}
	var paged []map[string]any
	for cursor, more := "", true; more; {
		r := s.get(path + "?limit=1" + cursor).want(200)
		paged = append(paged, r.data()...)
		var next string
		next, more = r.json["next_cursor"].(string)
		cursor = "&cursor=" + next
	}
	if fmt.Sprint(paged) != fmt.Sprint(list) {
		t.Errorf("got pages %v\nwant      %v", paged, list)
	}
	s.get("/v1/gateways/gw_00000000000000000000000000/limits").refused(404, "not_found", "")
}

// Guarantee: a simulation replays the recorded requests, accepts a limit only in the
// form of its record, changes nothing, and can be replayed with an Idempotency-Key.
func TestSimulationChangesNothing(t *testing.T) {
	s := start(t)
	p := newTrafficFixture(s)
	s.clock.move(time.Minute)
	for range 3 {
		p.emit(fine)
	}
	s.clock.move(2 * time.Second)
	path := "/v1/gateways/" + p.gateway + "/limits/simulate"
	want := fmt.Sprintf(`{"requests":3,"refused":2,"keys":[{"key_id":%q,"refused":2,"first_at":"2027-03-01T12:01:00Z"}]}`+"\n", p.key)
	for _, body := range []string{
		`{"route_id": "` + p.route + `", "key_id": null, "rate_limit": {"sustained": "1/min"}}`,
		`{"key_id": "` + p.key + `", "rate_limit": "1/min"}`,
		`{"key_id": "` + p.key + `", "rate_limit": {"sustained": "100/s", "daily": "1/day"}}`,
		`{"route_id": null, "rate_limit": {"sustained": "1/min", "burst": null}}`,
		`{"route_id": "` + p.route + `", "rate_limit": {"sustained": "1/min", "per": "key"}}`,
		`{"route_id": "` + p.route + `", "rate_limit": {"daily": "1/day"}}`,
	} {
		s.clock.move(time.Second)
		r := s.post(path, body).want(200)
		wantFields(t, r.json, "requests refused keys")
		if r.raw != want {
			t.Errorf("%s: got %s, want %s", body, r.raw, want)
		}
	}
	if r := s.post(path, `{"rate_limit": {"sustained": "100/s"}}`).want(200); r.raw != `{"requests":3,"refused":0,"keys":[]}`+"\n" {
		t.Errorf("got %s, want 3 requests and no refusal", r.raw)
	}
	ofPlan := strings.TrimSuffix(want, "}\n") + `,"limits":[{"limit":"few","refused":2,"unknown":0}]}` + "\n"
	for _, per := range []string{"key", "owner"} {
		if r := s.post(path, `{"plan": {"limits": [{"name": "few", "sustained": "1/min", "per": "`+per+`"}]}}`).want(200); r.raw != ofPlan {
			t.Errorf("of a plan: got %s, want %s", r.raw, ofPlan)
		}
	}
	if r := s.post(path, `{"plan": {"limits": []}}`).want(200); r.raw != `{"requests":0,"refused":0,"keys":[],"limits":[]}`+"\n" {
		t.Errorf("of a plan without limits: got %s, want an empty list", r.raw)
	}
	kept := map[string]string{"Idempotency-Key": "once"}
	body := `{"rate_limit": {"sustained": "1/min"}}`
	first := s.do(request{method: http.MethodPost, path: path, body: body, header: kept}).want(200)
	p.emit(fine)
	if again := s.do(request{method: http.MethodPost, path: path, body: body, header: kept}).want(200); again.raw != first.raw || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got second response %s, want a replay of %s", again.raw, first.raw)
	}
	for body, field := range map[string]string{
		`{}`: "rate_limit", `{"rate_limit": null}`: "rate_limit", `{"rate_limit": 5}`: "rate_limit", `{"rate_limit": []}`: "rate_limit", `{"rate_limit": ""}`: "rate_limit",
		`{"rate_limit": {}}`: "rate_limit", `{"rate_limit": "1/min"}`: "rate_limit", `{"rate_limit": {"colour": "1/min"}}`: "rate_limit.colour",
		`{"rate_limit": {"sustained": "often"}}`: "rate_limit.sustained", `{"rate_limit": {"sustained": 1}}`: "rate_limit.sustained",
		`{"rate_limit": {"sustained": "1/min", "daily": "1/day"}}`: "rate_limit.daily", `{"rate_limit": {"sustained": "1/min", "per": "key"}}`: "rate_limit.per",
		`{"rate_limit": {"burst": "1/s"}}`:                                                                 "rate_limit.sustained",
		`{"key_id": "` + p.key + `", "rate_limit": {"sustained": "1/min", "per": "key"}}`:                  "rate_limit.per",
		`{"key_id": "` + p.key + `", "rate_limit": "0/min"}`:                                               "rate_limit",
		`{"route_id": "` + p.route + `", "rate_limit": "1/min"}`:                                           "rate_limit",
		`{"route_id": "` + p.route + `", "key_id": "` + p.key + `", "rate_limit": {"sustained": "1/min"}}`: "key_id",
		`{"plan": {"limits": []}, "rate_limit": {"sustained": "1/min"}}`:                                   "plan", `{"plan": {"limits": []}, "key_id": "` + p.key + `"}`: "plan", `{"plan": {}}`: "plan.limits",
		`{"plan": {"limits": [{"name": "a", "sustained": "often"}]}}`: "plan.limits[0].sustained",
		`{"route_id": "", "rate_limit": {"sustained": "1/min"}}`:      "route_id",
		`{"rate_limit": {"sustained": "1/min"}, "since": "x"}`:        "since",
	} {
		s.clock.move(time.Second)
		s.post(path, body).refused(422, "validation_failed", field)
	}
	s.post("/v1/gateways/gw_00000000000000000000000000/limits/simulate", body).refused(404, "not_found", "")
}
