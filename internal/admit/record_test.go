package admit

import (
	"slices"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: the record of a request has its result, whether it is an authentication event,
// and the account, gateway, route and key as far as the checks got.
func TestRecordShowsResultAndIdentity(t *testing.T) {
	h := newHarness(t)
	routes := []gateway.Route{limited(route("/one", "GET"), config(t, "1/day", "", "", "")), route("/orders", "POST"), public(route("/open", "GET"))}
	g := h.gateway(func(g *gateway.Gateway) {
		g.Hostname, g.HostGiven, g.CORS = "a.example", true, &gateway.CORS{Origins: []string{"*"}}
	}, routes...)
	good, goodText := h.key(nil)
	stale, staleText := h.key(func(k *apikey.Key) { k.ExpiresAt = h.clock.Wall() })
	other, otherText := h.key(func(k *apikey.Key) { k.GatewayID = id.New(id.Gateway) })
	gone, goneText := h.key(nil)
	gone.RevokedAt = h.clock.Wall()
	h.source.PutKey(gone)
	foreignGone, foreignGoneText := h.key(func(k *apikey.Key) { k.AccountID = id.New(id.Account) })
	foreignGone.RevokedAt = h.clock.Wall()
	h.source.PutKey(foreignGone)
	_, foreign := h.key(func(k *apikey.Key) { k.AccountID = id.New(id.Account) })
	reader, readerText := h.key(func(k *apikey.Key) { k.Scope = apikey.Scopes{{Word: apikey.Read}} })

	const none, found, routed = 0, 1, 2 // nothing known; gateway known; route known
	for _, c := range []struct {
		name, method, target, secret string
		host                         string
		want                         accesslog.Result
		known                        int
		authenticated                bool
		key                          *apikey.Key
		prefix                       string
	}{
		{"never allowed", "TRACE", "/one", goodText, "", accesslog.Malformed, none, false, nil, ""},
		{"malformed", "GET", "/a/../one", goodText, "", accesslog.Malformed, none, false, nil, ""},
		{"no gateway", "GET", "/one", goodText, "b.example", accesslog.NoGateway, none, false, nil, ""},
		{"two keys", "GET", "/one?api_key=a&api_key=b", "", "", accesslog.Malformed, found, false, nil, ""},
		{"no key", "GET", "/one", "", "", accesslog.KeyInvalid, found, true, nil, ""},
		{"nonsense", "GET", "/one", "nonsense", "", accesslog.KeyInvalid, found, true, nil, ""},
		{"another account's", "GET", "/one", foreign, "", accesslog.KeyInvalid, found, true, nil, apikey.PrefixOf(foreign)},
		{"another account's, revoked", "GET", "/one", foreignGoneText, "", accesslog.KeyInvalid, found, true, nil, foreignGone.Prefix},
		{"revoked", "GET", "/one", goneText, "", accesslog.KeyInvalid, found, true, &gone, gone.Prefix},
		{"expired", "GET", "/one", staleText, "", accesslog.KeyExpired, found, true, &stale, stale.Prefix},
		{"another gateway's", "GET", "/one", otherText, "", accesslog.WrongGateway, found, true, &other, other.Prefix},
		{"no route", "GET", "/none", goodText, "", accesslog.NoRoute, found, true, &good, good.Prefix},
		{"no method", "PUT", "/one", goodText, "", accesslog.NoMethod, found, true, &good, good.Prefix},
		{"scope", "POST", "/orders", readerText, "", accesslog.WrongScope, routed, true, &reader, reader.Prefix},
		{"forwarded", "GET", "/one", goodText, "", accesslog.Forwarded, routed, true, &good, good.Prefix},
		{"limited", "GET", "/one", goodText, "", accesslog.Limited, routed, true, &good, good.Prefix},
		{"public", "GET", "/open", goodText, "", accesslog.Forwarded, routed, false, nil, ""},
		{"no method of a public route", "PUT", "/open", "", "", accesslog.NoMethod, found, false, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := Request{Method: c.method, Target: c.target, Host: "a.example"}
			if c.host != "" {
				req.Host = c.host
			}
			if c.secret != "" {
				req.Authorization = "Bearer " + c.secret
			}
			r := accesslog.Record{Status: 7, Limit: 7} // left over from another request
			v := h.decide(req)
			v.Record(&r)
			want := accesslog.Record{Start: h.clock.Wall().UnixMicro(), Upstream: -1, Result: c.want, Authenticated: c.authenticated}
			if c.known >= found {
				want.Gateway, _ = id.Parse(id.Gateway, g.ID)
				want.Account, _ = id.Parse(id.Account, h.account.ID)
			}
			if c.known == routed {
				i := slices.IndexFunc(routes, func(r gateway.Route) bool { return r.Path == c.target })
				want.Route, _ = id.Parse(id.Route, routes[i].ID)
			}
			if c.key != nil {
				want.Key, _ = id.Parse(id.Key, c.key.ID)
			}
			copy(want.Prefix[:], c.prefix)
			if c.want == accesslog.Limited {
				want.Limit, want.LimitScope = 1, uint8(ratelimit.RouteScope)
				want.ResetAt = h.clock.Wall().Unix() + 86400
			}
			if r != want {
				t.Errorf("\n got %+v\nwant %+v", r, want)
			}
		})
	}
}

// Guarantee: the record of a CORS preflight names the gateway, and is not an authentication
// event.
func TestRecordOfPreflight(t *testing.T) {
	h := newHarness(t)
	h.gateway(func(g *gateway.Gateway) {
		g.Hostname, g.HostGiven, g.CORS = "a.example", true, &gateway.CORS{Origins: []string{"*"}}
	}, route("/one", "GET"))
	v := h.decide(Request{Method: "OPTIONS", Target: "/one", Host: "a.example", Origin: "http://b.example", PreflightMethod: "GET"})
	var r accesslog.Record
	if v.Record(&r); r.Result != accesslog.Preflight || r.Authenticated || r.Gateway == [16]byte{} {
		t.Errorf("got %+v, want the result Preflight without authentication", r)
	}
}

// Guarantee: each known method has its number, and any other text, in any letter case, is
// OtherMethod.
func TestMethodOf(t *testing.T) {
	for n, method := range []string{"", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"} {
		if got := accesslog.MethodOf(method); got != accesslog.Method(n) {
			t.Errorf("MethodOf(%q) = %d, want %d", method, got, n)
		}
	}
	if accesslog.MethodOf("get") != accesslog.OtherMethod || accesslog.MethodOf("PROPFIND") != accesslog.OtherMethod {
		t.Error("MethodOf of an unknown method is not OtherMethod")
	}
}
