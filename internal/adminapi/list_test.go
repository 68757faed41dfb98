package adminapi_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
)

// Guarantee: pages are newest first, have every record once even if records are added
// meanwhile, and end with a null cursor.
func TestPagesHaveEveryRecordOnce(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	var want []string
	for i := range 7 {
		want = append([]string{s.newRoute("", gatewayID, fmt.Sprintf("/r%d", i))}, want...)
	}
	list := "/v1/gateways/" + gatewayID + "/routes"
	var got []string
	for query := "?limit=3"; ; {
		r := s.get(list + query).want(200)
		for _, record := range r.data() {
			got = append(got, record["route_id"].(string))
		}
		if len(r.data()) > 3 {
			t.Fatalf("got a page of %d records, want at most 3", len(r.data()))
		}
		next, more := r.json["next_cursor"].(string)
		if !more {
			break
		}
		s.newRoute("", gatewayID, fmt.Sprintf("/added%d", len(got))) // sorts before the page
		query = "?limit=3&cursor=" + url.QueryEscape(next)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	r := s.get("/v1/keys?level=gateway").want(200)
	if r.raw != `{"data":[],"next_cursor":null}`+"\n" {
		t.Errorf("got empty list %s", r.raw)
	}
	for range 26 {
		s.newKey(nil)
	}
	if n := len(s.get("/v1/keys").want(200).data()); n != 25 {
		t.Errorf("got a page of %d records by default, want 25", n)
	}
	if n := len(s.get("/v1/keys?limit=100").want(200).data()); n != 27 {
		t.Errorf("got a page of %d records, want all 27", n)
	}
	// A last page that is exactly full has no next cursor.
	if r := s.get("/v1/keys?limit=27").want(200); r.json["next_cursor"] != nil {
		t.Errorf("got next_cursor %v on the last page, want null", r.json["next_cursor"])
	}
}

// Guarantee: revisions are listed in pages, newest first.
func TestRevisionsAreListedInPages(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	for i := range 3 {
		s.putSpec(gatewayID, strings.ReplaceAll(petSpec, "/pets", fmt.Sprintf("/pets%d", i))).want(200)
	}
	first := s.get("/v1/gateways/" + gatewayID + "/revisions?limit=2").want(200)
	second := s.get("/v1/gateways/" + gatewayID + "/revisions?limit=2&cursor=" + first.text("next_cursor")).want(200)
	got := fmt.Sprint(first.data()[0]["number"], first.data()[1]["number"], second.data()[0]["number"], second.json["next_cursor"])
	if got != "3 2 1 <nil>" {
		t.Errorf("got %q, want revisions 3, 2 and 1 and no cursor", got)
	}
}

// Guarantee: a search of routes finds by a part of the path and by method, in pages, and a cursor is
// bound to it.
func TestRoutesAreSearched(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	for _, p := range []string{"/orders", "/orders/{id}", "/customers", "/Reports/orders"} {
		s.newRoute("", gatewayID, p)
	}
	list := "/v1/gateways/" + gatewayID + "/routes?"
	paths := func(r *response) string {
		var out []string
		for _, one := range r.data() {
			out = append(out, one["path"].(string))
		}
		return strings.Join(out, " ")
	}
	if got := paths(s.get(list + "q=ORDERS").want(200)); got != "/Reports/orders /orders/{id} /orders" {
		t.Errorf("got %q for q=ORDERS", got)
	}
	first := s.get(list + "q=orders&limit=2").want(200)
	second := s.get(list + "q=orders&limit=2&cursor=" + first.text("next_cursor")).want(200)
	if got := paths(first) + " | " + paths(second); got != "/Reports/orders /orders/{id} | /orders" {
		t.Errorf("got %q in pages of two", got)
	}
	s.get(list+"q=other&cursor="+first.text("next_cursor")).refused(422, "validation_failed", "cursor")
	if got := paths(s.get(list + "method=PURGE").want(200)); got != "" {
		t.Errorf("got %q for a method that no route has", got)
	}
	if got := paths(s.get(list + "q=customers&method=GET").want(200)); got != "/customers" {
		t.Errorf("got %q for GET and customers", got)
	}
}

// Guarantee: a search of gateways finds by a part of the name, of the hostname, even if Keygate generated
// it, or of the upstream's URL. It has pages and never shows a gateway of another account, and a cursor is
// bound to it.
func TestGatewaysAreSearched(t *testing.T) {
	s := start(t)
	for _, one := range []string{
		`{"name":"Orders","upstream_url":"http://127.0.0.1:1"}`, `{"name":"b","hostname":"orders.example.com","upstream_url":"http://127.0.0.1:1"}`,
		`{"name":"c","upstream_url":"http://127.0.0.1:1/orders"}`, `{"name":"d","upstream_url":"http://127.0.0.1:1"}`,
	} {
		s.post("/v1/gateways", one).want(201)
	}
	list := "/v1/gateways?"
	names := func(r *response) string {
		var out []string
		for _, one := range r.data() {
			out = append(out, one["name"].(string))
		}
		return strings.Join(out, " ")
	}
	first := s.get(list + "q=oRDERS&limit=2").want(200)
	second := s.get(list + "q=oRDERS&limit=2&cursor=" + first.text("next_cursor")).want(200)
	if got := names(first) + " | " + names(second); got != "c b | Orders" {
		t.Errorf("got %q in pages of two", got)
	}
	s.get(list+"q=other&cursor="+first.text("next_cursor")).refused(422, "validation_failed", "cursor")
	given := s.get(list + "limit=1").want(200).data()[0]["hostname"].(string)
	if got := names(s.get(list + "q=" + given).want(200)); got != "d" {
		t.Errorf("got %q for the hostname %s", got, given)
	}
	if got := names(s.get(list + "q=%25").want(200)); got != "" {
		t.Errorf("got %q for a text that none has", got)
	}
}

// Guarantee: a cursor is valid only for its list, account and filters, and only
// unchanged.
func TestCursorIsBoundToItsList(t *testing.T) {
	s := start(t)
	gatewayID, other := s.newGateway(""), s.newGateway("")
	for _, g := range []string{gatewayID, other} {
		s.newRoute("", g, "/a")
		s.newRoute("", g, "/b")
	}
	for range 2 {
		s.newKey(map[string]any{"owner": "a"})
		s.newKey(map[string]any{"owner": "b"})
	}
	cursor := func(path string) string { return s.get(path).want(200).text("next_cursor") }
	keys, filtered := cursor("/v1/keys?limit=1"), cursor("/v1/keys?limit=1&owner=a")
	routes, gateways := cursor("/v1/gateways/"+gatewayID+"/routes?limit=1"), cursor("/v1/gateways?limit=1")
	s.get("/v1/keys?limit=2&cursor=" + keys).want(200)
	s.get("/v1/keys?owner=a&cursor=" + filtered).want(200)

	for range 2 {
		s.newWebhook(nil)
	}
	hooks, events := cursor("/v1/webhooks?limit=1"), cursor("/v1/events?limit=1&type=key.created&since=2027-01-01")
	s.get("/v1/events?limit=2&type=key.created&since=2027-01-01&cursor=" + events).want(200)

	stranger := s.newAccount("other")
	for _, q := range []request{
		{path: "/v1/webhooks?cursor=" + hooks, key: stranger},
		{path: "/v1/webhook-deliveries?cursor=" + hooks},
		{path: "/v1/events?type=key.created&cursor=" + events},
		{path: "/v1/events?type=key.created&since=2027-01-02&cursor=" + events},
		{path: "/v1/events?cursor=" + hooks},
		{path: "/v1/keys?cursor=" + keys, key: stranger},
		{path: "/v1/gateways?cursor=" + gateways, key: stranger},
		{path: "/v1/keys?cursor=" + gateways},
		{path: "/v1/gateways?cursor=" + keys},
		{path: "/v1/keys?owner=a&cursor=" + keys},
		{path: "/v1/keys?owner=b&cursor=" + filtered},
		{path: "/v1/keys?cursor=" + filtered},
		{path: "/v1/gateways/" + other + "/routes?cursor=" + routes},
		{path: "/v1/gateways/" + gatewayID + "/revisions?cursor=" + routes},
		{path: "/v1/keys?cursor=" + keys + "A"},
		{path: "/v1/keys?cursor=" + keys[:len(keys)-1]},
		{path: "/v1/keys?cursor=" + keys + "%0A"},
	} {
		q.method = "GET"
		s.do(q).refused(422, "validation_failed", "cursor")
	}
	raw, err := base64.RawURLEncoding.DecodeString(keys)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		if i%20 == 0 {
			s.clock.move(1e9)
		}
		raw[i] ^= 1
		s.get("/v1/keys?cursor="+base64.RawURLEncoding.EncodeToString(raw)).refused(422, "validation_failed", "cursor")
		raw[i] ^= 1
	}
	// A cursor survives a restart.
	s.restart()
	s.get("/v1/keys?cursor=" + keys).want(200)
}

// Guarantee: each filter of the list of keys returns exactly the matching keys.
func TestKeyFiltersMatchExactly(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	bound := s.newKey(map[string]any{"gateway_id": gatewayID, "name": "Mobile app", "owner": "ann"})
	gone := s.newKey(map[string]any{"expires_at": "2027-03-01T13:00:00Z"}).text("key_id")
	ended := s.newKey(nil).text("key_id")
	s.do(request{method: "DELETE", path: "/v1/keys/" + ended}).want(200)
	s.clock.move(2 * 60 * 60 * 1e9)
	for query, want := range map[string]string{
		"gateway_id=" + gatewayID: bound.text("key_id"), "owner=ann": bound.text("key_id"), "q=mobile": bound.text("key_id"), "name=Mobile+app": bound.text("key_id"),
		"q=" + bound.text("key_prefix"): bound.text("key_id"), "state=expired": gone, "state=revoked": ended, "state=active&level=gateway": bound.text("key_id"),
	} {
		r := s.get("/v1/keys?" + query).want(200)
		if len(r.data()) != 1 || r.data()[0]["key_id"] != want {
			t.Errorf("%s: got %s, want only %s", query, r.raw, want)
		}
	}
	if n := len(s.get("/v1/keys?owner=nobody").want(200).data()); n != 0 {
		t.Errorf("got %d keys of an unknown owner, want 0", n)
	}
}

// Guarantee: a page has at most 8 MiB: a page of large records ends early, with a cursor that leads on to the others.
func TestPagesAreBoundedInBytes(t *testing.T) {
	s := start(t)
	var names []string
	for i := range 760 { // a certificate of 62 KB
		names = append(names, fmt.Sprintf("%050d.example", i))
	}
	pair := certificatetest.NewFor(t, names...)
	var origins []string
	for i := range 100 {
		origins = append(origins, fmt.Sprintf("https://%0230d.example", i))
	}
	const gateways = 100
	made := map[string]bool{}
	for i := range gateways {
		made[s.post("/v1/gateways", map[string]any{
			"name": fmt.Sprint(i), "upstream_url": "https://example.com", "upstream_client_certificate": string(pair.Cert),
			"upstream_client_key": string(pair.Key), "cors": map[string]any{"origins": origins, "methods": []string{"GET"}, "headers": []string{}, "max_age": 1},
		}).want(201).text("gateway_id")] = true
	}
	pages := 0
	for cursor := ""; ; pages++ {
		r := s.get("/v1/gateways?limit=100" + cursor).want(200)
		if len(r.raw) > 8<<20 {
			t.Errorf("got a page of %d bytes, want at most 8 MiB", len(r.raw))
		}
		for _, g := range r.data() {
			delete(made, g["gateway_id"].(string))
		}
		if r.json["next_cursor"] == nil {
			break
		}
		cursor = "&cursor=" + r.text("next_cursor")
	}
	if len(made) > 0 || pages == 0 {
		t.Errorf("%d gateways are on none of %d pages, want all on more than one", len(made), pages+1)
	}
}
