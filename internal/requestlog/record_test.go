package requestlog

import (
	"crypto/rand"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: each refusal and failure has its check, its code and, for a limit, its level and the
// time at which the request would have passed.
func TestDecisionsInWords(t *testing.T) {
	prefix := [10]byte([]byte("kg_abc123\x00"))
	for _, test := range []struct {
		record            accesslog.Record
		check, code, says string
	}{
		{accesslog.Record{Status: 401, Result: accesslog.KeyInvalid}, "key", "key_invalid", "no key was sent"},
		{accesslog.Record{Status: 401, Result: accesslog.KeyInvalid, Reason: accesslog.NoKey}, "key", "key_invalid", "no key was sent"},
		{accesslog.Record{Status: 401, Result: accesslog.KeyInvalid, Reason: accesslog.KeyWithoutScheme}, "key", "key_invalid", "without the scheme Bearer"},
		{accesslog.Record{Status: 401, Result: accesslog.KeyInvalid, Reason: accesslog.KeyInOtherHeader}, "key", "key_invalid", "in a header that this gateway does not read"},
		{accesslog.Record{Status: 401, Result: accesslog.KeyInvalid, Reason: accesslog.MistypedKey}, "key", "key_invalid", "was mistyped or cut off"},
		{accesslog.Record{Status: 401, Result: accesslog.KeyInvalid, Reason: accesslog.NotAKey}, "key", "key_invalid", "does not have the form of a key"},
		{accesslog.Record{Status: 401, Result: accesslog.KeyInvalid, Reason: accesslog.UnknownKey, Prefix: prefix}, "key", "key_invalid", "kg_abc123 was sent: it is unknown"},
		{accesslog.Record{Status: 401, Result: accesslog.KeyInvalid, Reason: accesslog.UnknownKey, Prefix: prefix, Key: id.NewFast()}, "key", "key_invalid", "kg_abc123 had been revoked"},
		{accesslog.Record{Status: 401, Result: accesslog.KeyInvalid, Prefix: prefix}, "key", "key_invalid", "kg_abc123"},
		{accesslog.Record{Status: 401, Result: accesslog.KeyInvalid, Prefix: prefix, Key: id.NewFast()}, "key", "key_invalid", "kg_abc123 had been revoked"},
		{accesslog.Record{Status: 401, Result: accesslog.KeyExpired, Prefix: prefix}, "key", "key_expired", "kg_abc123 had expired"},
		{accesslog.Record{Status: 403, Result: accesslog.WrongGateway, Prefix: prefix}, "gateway", "scope_insufficient", "another gateway"},
		{accesslog.Record{Status: 403, Result: accesslog.WrongScope, Method: accesslog.DELETE, Prefix: prefix}, "scope", "scope_insufficient", "does not allow DELETE"},
		{accesslog.Record{Status: 403, Result: accesslog.OwnerSuspended, Prefix: prefix}, "owner", "owner_suspended", "the owner of the key kg_abc123 was suspended"},
		{accesslog.Record{Status: 404, Result: accesslog.NoRoute}, "route", "route_not_found", "no route that matches the path"},
		{accesslog.Record{Status: 405, Result: accesslog.NoMethod, Method: accesslog.PUT}, "route", "method_not_allowed", "no route for PUT on this path"},
		{accesslog.Record{Status: 404, Result: accesslog.NoGateway}, "host", "gateway_not_found", "no gateway of an active account has the host"},
		{accesslog.Record{Status: 400, Result: accesslog.Malformed, Reason: accesslog.DocumentMismatch}, "document", "schema_mismatch", "does not meet the OpenAPI document"},
		{accesslog.Record{Status: 502, Result: accesslog.Unreachable}, "upstream", "upstream_unreachable", "could not be reached"},
		{accesslog.Record{Status: 502, Result: accesslog.Unreachable, Reason: accesslog.ConnectionRefused}, "upstream", "upstream_unreachable", "refused the connection"},
		{accesslog.Record{Status: 502, Result: accesslog.Unreachable, Reason: accesslog.AddressNotAllowed}, "upstream", "upstream_unreachable", "address of the upstream is not allowed"},
		{accesslog.Record{Status: 504, Result: accesslog.TimedOut}, "timeout", "upstream_timeout", "timeout"},
		{accesslog.Record{Status: 504, Result: accesslog.TimedOut, Reason: accesslog.ResponseTimeout}, "timeout", "upstream_timeout", "head of a response within"},
		{accesslog.Record{Status: 504, Result: accesslog.TimedOut, Reason: accesslog.NoFreeConnection}, "timeout", "upstream_timeout", "upstream_max_connections"},
		{accesslog.Record{Status: 503, Result: accesslog.Failed, Reason: accesslog.NoDescriptors}, "internal", "unavailable", "no free file descriptor"},
		{accesslog.Record{Status: 500, Result: accesslog.Failed}, "internal", "internal", "request_id"},
		{accesslog.Record{Status: 503, Result: accesslog.Failed}, "internal", "unavailable", "request_id"},
		{accesslog.Record{Status: 200, UpstreamStatus: 200, Reason: accesslog.KeyWasRevoked, Prefix: prefix}, "key", "key_invalid", "the key kg_abc123 was revoked"},
		{accesslog.Record{Status: 101, UpstreamStatus: 101, Reason: accesslog.KeyHasExpired, Prefix: prefix}, "key", "key_expired", "the key kg_abc123 expired"},
		{accesslog.Record{Status: 401, Result: accesslog.KeyInvalid, Reason: accesslog.KeyWasRevoked, Prefix: prefix}, "key", "key_invalid", "was admitted, but"},
		{accesslog.Record{Status: 200, Reason: accesslog.KeyNotAllowed, Prefix: prefix}, "scope", "scope_insufficient", "does not allow it any more"},
		{accesslog.Record{Status: 200, Reason: accesslog.OwnerWasSuspended, Prefix: prefix}, "owner", "owner_suspended", "but before its end the owner of the key kg_abc123 was suspended"},
		{accesslog.Record{Status: 404, Result: accesslog.NoGateway, Reason: accesslog.GatewayGone}, "gateway", "gateway_not_found", "the gateway was deleted"},
		{accesslog.Record{Status: 503, Result: accesslog.Failed, Reason: accesslog.LeaseLost}, "internal", "unavailable", "could not confirm"},
		{accesslog.Record{Status: 503, UpstreamStatus: 503}, "upstream", "upstream_status", "upstream responded with status 503"},
		{accesslog.Record{Status: 403, UpstreamStatus: 403}, "upstream", "upstream_status", "upstream responded with status 403"},
		{accesslog.Record{Status: 429, Result: accesslog.Limited, LimitScope: uint8(ratelimit.KeyScope), Limit: 5, ResetAt: 1_800_000_000}, "limit", "rate_limit_exceeded", "the key's own limit of 5 was used up"},
		{accesslog.Record{Status: 429, Result: accesslog.Limited, LimitScope: uint8(ratelimit.RouteScope), Limit: 5}, "limit", "rate_limit_exceeded", "the route's limit"},
		{accesslog.Record{Status: 429, Result: accesslog.Limited, LimitScope: uint8(ratelimit.DailyScope), Limit: 5}, "limit", "rate_limit_exceeded", "the route's daily limit"},
		{accesslog.Record{Status: 429, Result: accesslog.Limited, LimitScope: uint8(ratelimit.GlobalScope), Limit: 5}, "limit", "rate_limit_exceeded", "the gateway's global limit"},
		{accesslog.Record{Status: 429, Result: accesslog.Limited, LimitScope: uint8(ratelimit.RouteConcurrencyScope), Limit: 5, ResetAt: 1_800_000_000}, "limit", "rate_limit_exceeded", "the route's limit of requests in flight allowed 5, and so many were in flight"},
		{accesslog.Record{Status: 429, Result: accesslog.Limited, LimitScope: uint8(ratelimit.DefaultGlobalScope), Limit: 5}, "limit", "rate_limit_exceeded", "the gateway sets no limit, and the server's limit for such gateways (--default-global-limit) of 5 was used up"},
	} {
		r := test.record
		r.Account = id.NewFast()
		if got := Belongs(&accesslog.Entry{Record: r}); got != Ended {
			t.Errorf("Belongs(%+v) = %d, want %d", r, got, Ended)
		}
		record := NewRecord(&accesslog.Entry{Record: r})
		d := record.Request().Decision
		if d.Check != test.check || d.Code != test.code || !strings.Contains(d.Message, test.says) {
			t.Errorf("decision %d with %d: %+v, want %s, %s and %q", r.Result, r.Status, d, test.check, test.code, test.says)
		}
		unforeseen := d.LimitScope == ratelimit.ConcurrencyScope.String() // when a request ends
		switch {
		case r.Result == accesslog.Limited && (d.LimitScope == "" || d.PassesAt.IsZero() != unforeseen || d.Limit != 5):
			t.Errorf("got the decision %+v, want the scope, the limit 5 and the time of passing, if it is foreseen", d)
		case r.Result != accesslog.Limited && (d.LimitScope != "" || !d.PassesAt.IsZero()):
			t.Errorf("got the decision %+v, want no scope and no time of passing", d)
		}
		if d.Reason != r.Reason.String() {
			t.Errorf("got the reason %q, want %q", d.Reason, r.Reason)
		}
		if d.UpstreamStatus != int(r.UpstreamStatus) {
			t.Errorf("got the upstream status %d, want that of the record", d.UpstreamStatus)
		}
	}
}

// Guarantee: requests that passed, that belong to another account, or that have not ended are not
// in the log.
func TestWhatBelongs(t *testing.T) {
	account := [16]byte{1}
	for _, r := range []accesslog.Record{
		{Account: account, Status: 200}, {Account: account, Status: 404, Result: accesslog.Forwarded}, {Account: account, Status: 499, Result: accesslog.Abandoned},
		{Account: account, Status: 400, Result: accesslog.Malformed},
		{Status: 401, Result: accesslog.KeyInvalid}, {Account: account, Status: 401, Part: accesslog.Started},
	} {
		if got := Belongs(&accesslog.Entry{Record: r}); got != NotKept {
			t.Errorf("Belongs(%+v) = %d, want %d", r, got, NotKept)
		}
	}
}

// Guarantee: the texts of an entry may be reused at once, and a long path takes little memory.
func TestRecordKeepsNothingOfTheEntry(t *testing.T) {
	path := []byte("/orders/" + strings.Repeat("7", 5000))
	e := accesslog.Entry{Path: string(path[:20])}
	e.Record = accesslog.Record{Account: id.NewFast(), Request: id.NewFast(), Start: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC).UnixMicro(), Duration: 2_500_000,
		Client: netip.MustParseAddr("192.0.2.7").As16(), Method: accesslog.GET, Status: 401, Result: accesslog.KeyInvalid}
	record := NewRecord(&e)
	r := record.Request()
	if r.ID != id.Format(id.Request, e.Request) || r.ClientIP != "192.0.2.7" || r.Method != "GET" || r.Path != "/orders/777777777777" ||
		r.Time.Nanosecond() != 6000 || r.DurationMS != 2.5 || r.KeyID != "" || r.RouteID != "" || r.GatewayID != "" {
		t.Errorf("got the request %+v, want the fields of the access record", r)
	}
	e.Path = string(path)
	if long := NewRecord(&e); len(long.Path) > 2100 || !strings.HasSuffix(long.Path, "…") {
		t.Errorf("a path of %d bytes is kept with %d, want a cut after 2 KiB and an ellipsis", len(path), len(long.Path))
	}
}

// Guarantee: a key which a caller put into a path is not kept.
func TestNoKeyInAPath(t *testing.T) {
	key, err := apikey.Generate(apikey.GatewayLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	path := "/orders/" + key + strings.Repeat("/x", longestPath)
	if r := NewRecord(&accesslog.Entry{Path: path}); strings.Contains(r.Path, key) || !strings.HasPrefix(r.Path, "/orders/"+key[:9]+"***/x") {
		t.Errorf("got the path %.80s, want it with a redacted key", r.Path)
	}
}

// Guarantee: a refusal by a limit of a plan names the plan and the limit, in words and as limit_name.
func TestDecisionOfALimitOfAPlan(t *testing.T) {
	r := accesslog.Record{Account: id.NewFast(), Status: 429, Result: accesslog.Limited, LimitScope: uint8(ratelimit.PlanScope), Limit: 600}
	record := NewRecord(&accesslog.Entry{Record: r, Detail: "pro.per-minute"})
	d := record.Request().Decision
	if d.LimitScope != "plan" || d.LimitName != "pro.per-minute" || d.Detail != "" || !strings.Contains(d.Message, "the limit per-minute of the plan pro of 600 was used up") {
		t.Errorf("got the decision %+v, want the limit per-minute of the plan pro", d)
	}
}

// Guarantee: a refusal by a limit that had units left, but fewer than the request needed, does not say that it was used up.
func TestDecisionOfALimitWithUnitsLeft(t *testing.T) {
	r := accesslog.Record{Account: id.NewFast(), Status: 429, Result: accesslog.Limited, LimitScope: uint8(ratelimit.PlanScope), Limit: 1000, Remaining: 216, ResetAt: 1_800_000_000}
	record := NewRecord(&accesslog.Entry{Record: r, Detail: "free.per-month"})
	const want = "the limit per-month of the plan free of 1000 had 216 left, less than the request needed; the request would have passed at 2027-01-15T08:00:00Z"
	if d := record.Request().Decision; d.Message != want {
		t.Errorf("got the message %q, want %q", d.Message, want)
	}
}
