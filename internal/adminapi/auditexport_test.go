package adminapi_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/adminapi"
	"github.com/keygate/keygate/internal/id"
)

// listed returns the audit records that match a query, in the JSON of the list, oldest first.
func (s *server) listed(query string) (lines []string) {
	s.t.Helper()
	for cursor := ""; ; {
		var page struct {
			Data []json.RawMessage `json:"data"`
			Next *string           `json:"next_cursor"`
		}
		r := s.get("/v1/audit-log?limit=100" + query + cursor).want(200)
		if err := json.Unmarshal([]byte(r.raw), &page); err != nil {
			s.t.Fatal(err)
		}
		for _, record := range page.Data {
			lines = append(lines, string(record)+"\n")
		}
		if page.Next == nil {
			slices.Reverse(lines)
			return lines
		}
		cursor = "&cursor=" + *page.Next
	}
}

// odd makes a record whose values need escapes in both formats.
func odd(r *accesslog.Record) { r.Client, r.Request = [16]byte{}, [16]byte{1, 2, 3} }

// fillAuditLog makes records of every sort, before the time that it returns.
func fillAuditLog(s *server) (p *trafficFixture, before string) {
	p = newTrafficFixture(s)
	for _, change := range []func(*accesslog.Record){fine, limited, unknown, broken, odd} {
		s.clock.move(time.Second + 7*time.Microsecond)
		p.emit(change)
	}
	now := s.clock.Now()
	for _, path := range []string{"/<&>\u2028", `/a"b,c\d`, "/é…\x01", "=1+1", "@x", "-2", "*"} {
		r := accesslog.Record{Start: now.UnixMicro(), Request: id.NewFastAt(now.UnixMilli()), Account: p.account, Gateway: p.gw, Authenticated: true, Method: accesslog.GET}
		s.shard.Emit(&r, "", path)
	}
	s.clock.move(time.Minute)
	return p, "&until=" + s.clock.Now().Format(time.RFC3339)
}

// Guarantee: an export in JSON lines has exactly the records of the list with the same filters,
// each as in the list, oldest first. It has no limit and no cursor, and counts as one call.
func TestExportIsTheListReversed(t *testing.T) {
	s := start(t)
	p, before := fillAuditLog(s)
	for _, filter := range []string{"", "&kind=management", "&kind=authentication", "&outcome=key_invalid", "&gateway_id=" + p.gateway, "&key_id=" + p.key, "&since=2027-03-01T12:00:02Z", "&actor=nobody"} {
		want := s.listed(filter + before)
		r := s.get("/v1/audit-log?format=jsonl" + filter + before).want(200)
		if r.header.Get("Content-Type") != "application/jsonl" {
			t.Errorf("got the type %q", r.header.Get("Content-Type"))
		}
		if got := slices.Collect(strings.Lines(r.raw)); !slices.Equal(got, want) {
			t.Errorf("filter %q: got\n%swant\n%s", filter, r.raw, strings.Join(want, ""))
		}
	}
	remaining := func() string { return s.get("/v1/account").want(200).header.Get("X-Ratelimit-Remaining") }
	s.clock.move(time.Minute)
	remaining()
	s.get("/v1/audit-log?format=jsonl").want(200)
	if got := remaining(); got != "197" {
		t.Errorf("after an export between two calls, %s calls remain, want 197", got)
	}
	for _, bad := range []struct{ query, field string }{
		{"format=jsonl&limit=5", "limit"}, {"format=csv&cursor=abc", "cursor"}, {"format=xml", "format"}, {"format=", "format"}, {"format=csv&kind=x", "kind"},
		{"format=jsonl&since=2027-03-02&until=2027-03-01", "since"},
	} {
		s.get("/v1/audit-log?"+bad.query).refused(422, "validation_failed", bad.field)
	}
	if r := s.do(request{method: "HEAD", path: "/v1/audit-log?format=jsonl"}).want(200); r.raw != "" {
		t.Errorf("got a body for HEAD: %s", r.raw)
	}
}

// Guarantee: an export in CSV has the same records, as RFC 4180 says, after a line with the names
// of the columns. A cell that a spreadsheet would take for a formula begins with an apostrophe.
func TestExportAsCSV(t *testing.T) {
	s := start(t)
	_, before := fillAuditLog(s)
	r := s.get("/v1/audit-log?format=csv" + before).want(200)
	if r.header.Get("Content-Type") != "text/csv" {
		t.Errorf("got the type %q", r.header.Get("Content-Type"))
	}
	rows, err := csv.NewReader(strings.NewReader(r.raw)).ReadAll()
	if err != nil {
		t.Fatalf("%v in\n%s", err, r.raw)
	}
	want := s.listed(before)
	if len(rows) != len(want)+1 || strings.Join(rows[0], " ") != auditFields+" action target actor_key_id diff count"+tokenFields+" actor_kind actor_id actor_name" {
		t.Fatalf("got %d rows for %d records, and the columns %v", len(rows), len(want), rows[0])
	}
	for i, line := range want {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		for column, name := range rows[0] {
			value, cell := "", rows[i+1][column]
			field := record[name]
			if part, nested := strings.CutPrefix(name, "actor_"); nested && name != "actor_key_id" {
				by, _ := record["actor"].(map[string]any)
				field = by[part]
			}
			switch v := field.(type) {
			case string:
				value = v
			case float64:
				value = strconv.FormatFloat(v, 'f', -1, 64)
			case map[string]any:
				content, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				value = string(content)
			}
			if value != "" && strings.ContainsAny(value[:1], "=+-@") {
				value = "'" + value
			}
			if cell != value {
				t.Errorf("row %d: got %s %q, want %q", i+1, name, cell, value)
			}
		}
	}
}

// pipe is a client that reads the body of a response only as far as the test lets it.
type pipe struct {
	header  http.Header
	started chan struct{} // closed after the header
	pieces  chan []byte   // the body
	gone    chan struct{} // closed when the client is
}

func newPipe() *pipe {
	return &pipe{header: http.Header{}, started: make(chan struct{}), pieces: make(chan []byte), gone: make(chan struct{})}
}

// exportClient is the client of an export. begun is closed when the client has the header.
type exportClient interface {
	http.ResponseWriter
	begun() <-chan struct{}
}

func (p *pipe) begun() <-chan struct{} { return p.started }

func (p *pipe) Header() http.Header { return p.header }
func (p *pipe) WriteHeader(int)     { close(p.started) }
func (p *pipe) Write(b []byte) (int, error) {
	select {
	case p.pieces <- slices.Clone(b):
		return len(b), nil
	case <-p.gone:
		return 0, errors.New("the client is gone")
	}
}

// serveExport starts an export for a client, and returns when it runs. When the handler returns,
// the channel gets the value with which it panicked, or nil.
func (s *server) serveExport(key string, p exportClient) <-chan any {
	s.t.Helper()
	q := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/v1/audit-log?format=jsonl", nil)
	q.Header.Set("Authorization", "Bearer "+key)
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		s.handler.ServeHTTP(p, q)
	}()
	select {
	case <-p.begun():
	case <-ended:
		s.t.Fatal("the export ended before its first record")
	}
	return ended
}

// aborted reports whether a handler that ended with end broke off its response.
func aborted(end any) bool {
	err, _ := end.(error)
	return errors.Is(err, http.ErrAbortHandler)
}

// rest reads what is left of the body of an export, and returns how it ended.
func (p *pipe) rest(ended <-chan any) (body string, end any) {
	for {
		select {
		case piece := <-p.pieces:
			body += string(piece)
		case end := <-ended:
			return body, end
		}
	}
}

// Guarantee: an account has at most 2 exports at a time; a further export is a 429 of the scope
// account, also with another key. Other accounts are not affected. An export that ended, or whose
// client went away, makes room.
func TestExportsOfAnAccountAreBounded(t *testing.T) {
	s := start(t)
	other, second := s.newAccount("other"), s.accountKey("read")
	a, b := newPipe(), newPipe()
	endedA, endedB := s.serveExport(s.admin, a), s.serveExport(s.admin, b) // both wait for their clients
	r := s.do(request{method: "GET", path: "/v1/audit-log?format=csv", key: second}).refused(429, "rate_limit_exceeded", "")
	if r.json["limit_scope"] != "account" || r.json["limit"] != 2.0 || r.header.Get("Retry-After") != "10" {
		t.Errorf("got %s with Retry-After %q", r.raw, r.header.Get("Retry-After"))
	}
	s.do(request{method: "GET", path: "/v1/audit-log?format=csv", key: other}).want(200)
	s.get("/v1/audit-log").want(200)
	close(a.gone)
	if got := <-endedA; !aborted(got) {
		t.Errorf("the export of a client that went away ended with %v, want it broken off", got)
	}
	s.get("/v1/audit-log?format=csv").want(200)
	if body, end := b.rest(endedB); end != nil || !strings.HasSuffix(body, "}\n") {
		t.Errorf("the other export ended with %v after %d bytes", end, len(body))
	}
	for range 3 {
		s.get("/v1/audit-log?format=csv").want(200)
	}
}

// Guarantee: all accounts together have at most 8 exports at a time. While 4 run, an account gets no
// second one, so that few accounts cannot hold all slots.
func TestExportsInAllAreBounded(t *testing.T) {
	s := start(t)
	var pipes []*pipe
	var ends []<-chan any
	for i := range 8 {
		key := s.newAccount(fmt.Sprint("account ", i))
		s.do(request{method: "GET", path: "/v1/account", key: key}).want(200)
		p := newPipe()
		pipes, ends = append(pipes, p), append(ends, s.serveExport(key, p))
		if i == 3 {
			if r := s.do(request{method: "GET", path: "/v1/audit-log?format=jsonl", key: key}).refused(429, "rate_limit_exceeded", ""); r.json["limit"] != 1.0 {
				t.Errorf("got %s, want the limit 1", r.raw)
			}
		}
	}
	s.get("/v1/audit-log").want(200) // exports that wait for their clients hold no connection of the store
	if r := s.get("/v1/audit-log?format=jsonl").refused(429, "rate_limit_exceeded", ""); r.json["limit"] != 8.0 {
		t.Errorf("got %s, want the limit 8", r.raw)
	}
	for i, p := range pipes {
		p.rest(ends[i])
	}
	s.get("/v1/audit-log?format=jsonl").want(200)
}

// long makes an audit log whose export has several pieces.
func long(s *server, records int, path string) {
	s.t.Helper()
	p := newTrafficFixture(s)
	for i := range records {
		r := accesslog.Record{
			Start: s.clock.Now().UnixMicro(), Request: id.NewFast(), Account: p.account, Gateway: p.gw, Authenticated: true, Method: accesslog.GET,
		}
		s.shard.Emit(&r, "", path)
		if i%500 == 499 || i == records-1 { // more would be lost while the store is slow
			if err := s.logs.Sync(s.t.Context()); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// Guarantee: an export that cannot be finished is broken off and never ends as if it were
// complete: after an error of the store, and after its key was revoked.
func TestExportsAreBrokenOff(t *testing.T) {
	for _, cause := range []struct {
		name string
		make func(s *server, keyID string)
	}{
		{"the store fails", func(s *server, _ string) {
			if err := s.db.Close(); err != nil {
				s.t.Error(err)
			}
		}},
		{"the key is revoked", func(s *server, keyID string) {
			s.do(request{method: "DELETE", path: "/v1/keys/" + keyID}).want(200)
			s.clock.move(2 * time.Second)
		}},
	} {
		t.Run(cause.name, func(t *testing.T) {
			s := start(t)
			long(s, 3000, "/a")
			key := s.newKey(map[string]any{"level": "account", "scope": "read"})
			p := newPipe()
			ended := s.serveExport(key.text("key"), p)
			<-p.pieces
			cause.make(s, key.text("key_id"))
			if _, end := p.rest(ended); !aborted(end) {
				t.Errorf("the export ended with %v, want it broken off", end)
			}
			if cause.name == "the store fails" {
				s.close = s.http.Close
			}
		})
	}
}

// Guarantee: a client that does not read is cut off after the stall time, and gets an error
// instead of the end of the response.
func TestStalledExportIsCutOff(t *testing.T) {
	s := start(t)
	long(s, 12_000, "/"+strings.Repeat("x", 2000)) // more than the buffers of a connection hold
	s.api.Stall = 50 * time.Millisecond
	api := must(adminapi.New(s.api))(t)
	ended := make(chan struct{})
	hasty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		api.ServeHTTP(w, r)
	}))
	defer hasty.Close()
	q, err := http.NewRequest(http.MethodGet, hasty.URL+"/v1/audit-log?format=jsonl", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+s.admin)
	res, err := hasty.Client().Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	<-ended // although nothing was read
	if n, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Errorf("got a complete body of %d bytes", n)
	}
}
