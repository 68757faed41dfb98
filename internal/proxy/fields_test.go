package proxy

import (
	"crypto/rand"
	"testing"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/snapshot"
)

// Guarantee: a field is dropped in exactly the parts of messages in which contract 4.2 and
// 4.4 forbid it, in any letter case, and with "_" for "-" if the gateway sets the field, or an
// upstream could take it for a field that frames the body or names the client.
func TestFieldsThatPass(t *testing.T) {
	t.Parallel()
	type passes struct{ request, trusted, response, trailer, responseTrailer bool }
	never := passes{}
	always := passes{true, true, true, true, true}
	head := passes{true, true, true, false, false}
	for name, want := range map[string]passes{
		"Connection": never, "proxy-connection": never, "Keep-Alive": never, "TE": never, "Trailer": never,
		"Transfer-Encoding": never, "Upgrade": never, "HTTP2-Settings": never, "Proxy-Authenticate": never,
		"Proxy-Authorization": never, "X-Request-Id": never, "x_request_id": never,

		"Host":           {response: true},
		"Content-Length": {response: true},
		"X-Keygate-Any":  {response: true},
		"x_keygate_any":  {response: true},

		"X-RateLimit-Limit": {request: true, trusted: true},
		"ratelimit_policy":  {request: true, trusted: true},
		"Alt-Svc":           {request: true, trusted: true},

		"Forwarded":          {trusted: true, response: true},
		"X-Forwarded-Host":   {trusted: true, response: true},
		"x_forwarded_proto":  {trusted: true, response: true},
		"X-Forwarded-Prefix": {trusted: true, response: true},
		"X-Forwarded-For":    {response: true}, // written anew

		"X-Real-IP": {trusted: true, response: true}, "x_real_ip": {trusted: true, response: true}, "X-Real_Ip": {trusted: true, response: true},
		"X-Client-IP": {trusted: true, response: true}, "X_CLIENT_IP": {trusted: true, response: true},
		"True-Client-IP": {trusted: true, response: true}, "true_client_ip": {trusted: true, response: true},
		"CF-Connecting-IP": {trusted: true, response: true}, "Cf_Connecting-Ip": {trusted: true, response: true},

		"Content_Length": {response: true}, "CONTENT_LENGTH": {response: true},
		"Transfer_Encoding": {response: true}, "transfer_encoding": {response: true},

		"Authorization": head, "Expect": head, "Via": head, "Content-Type": head, "Content-Encoding": head,
		"Set-Cookie": head, "cookie": head, "WWW-Authenticate": head, "Location": head, "Max-Forwards": head,

		"Date":                        {true, true, true, true, false},
		"Cache-Control":               {true, true, true, true, false},
		"Retry-After":                 {true, true, true, true, false},
		"Access-Control-Allow-Origin": {true, true, true, true, false},

		"Accept": always, "Traceparent": always, "X-Forward": always, "X-Keygate": always, "Grpc-Status": always,
		"X-Real-Id": always, "X-Client-Id": always, "Content_Lengths": always, "Contents-Length": always, "True-Client-Id": always, "X-Real-IPs": always,
		"X-RateLimit-Remaining-Tokens": always, "x-ratelimit-used": always, "X-RateLimit-": always, "RateLimit-Reset": always,
	} {
		id := NameOf(name)
		got := passes{
			request:         !RequestDrop(false, false).Has(id),
			trusted:         !RequestDrop(true, false).Has(id),
			response:        !ResponseDrop(200, false).Has(id),
			trailer:         MayTrail(name, id, false),
			responseTrailer: MayTrail(name, id, true),
		}
		if got != want {
			t.Errorf("%s passes as %+v, want %+v", name, got, want)
		}
	}
}

// Guarantee: a field that the gateway writes only in some messages is dropped only there.
func TestFieldsThatDependOnTheMessage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		got  bool
		want bool
	}{
		{"traceparent is dropped from a traced request", RequestDrop(false, true).Has(NameOf("Traceparent")), true},
		{"Access-Control-Allow-Origin is dropped under CORS", ResponseDrop(200, true).Has(NameOf("Access-Control-Allow-Origin")), true},
		{"Access-Control-Allow-Origin passes without CORS", ResponseDrop(200, false).Has(NameOf("Access-Control-Allow-Origin")), false},
		{"Content-Length is dropped from a 204", ResponseDrop(204, false).Has(NameOf("Content-Length")), true},
		{"Content-Length is dropped from a 103", ResponseDrop(103, false).Has(NameOf("Content-Length")), true},
		{"Content-Length passes in a 304", ResponseDrop(304, false).Has(NameOf("Content-Length")), false},
		{"Connection cannot name Via", Unnameable.Has(NameOf("Via")), true},
		{"Connection can name Accept", Unnameable.Has(NameOf("Accept")), false},
		{"a configured field is the gateway's", IsWithheld([]string{"X-Secret"}, "x_secret"), true},
		{"another field is not", IsWithheld([]string{"X-Secret"}, "X-Secrets"), false},
	} {
		if c.got != c.want {
			t.Errorf("%s: dropped or owned is %v, want %v", c.what, c.got, c.want)
		}
	}
}

// Guarantee: contract 4.2: no key reaches the upstream in Authorization, and any other
// credential does.
func TestIsKey(t *testing.T) {
	t.Parallel()
	keyed, public := &admit.Verdict{Caller: &snapshot.Caller{}, Gateway: &snapshot.Settings{}}, &admit.Verdict{}
	key, err := apikey.Generate(apikey.GatewayLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		value         string
		keyed, public bool
	}{
		{"Bearer kg_mistyped", true, true},
		{"bearer\tkga_mistyped", true, true},
		{"Bearer token", true, false},
		{"Bearer", true, false},
		{"Bearertoken", false, false},
		{"Basic kg_x", false, false},
		{key, true, true}, // a mistake that is often made
		{"Basic " + key, true, true},
		{"ApiKey \t" + key + " ", true, true},
		{"", false, false},
	} {
		if got := IsKey(c.value, keyed); got != c.keyed {
			t.Errorf("IsKey(%q) is %v for a request with a key, want %v", c.value, got, c.keyed)
		}
		if got := IsKey(c.value, public); got != c.public {
			t.Errorf("IsKey(%q) is %v on a public route, want %v", c.value, got, c.public)
		}
	}
}

// Guarantee: contract 4.4: a request may upgrade to any protocol except HTTP and TLS, and
// an upstream only to what the client asked for.
func TestUpgradeProtocols(t *testing.T) {
	t.Parallel()
	for protocols, want := range map[string]bool{
		"websocket": true, "echo/1, websocket": true, "": false, " , ": false,
		"h2c": false, "H2C": false, "websocket, h2c": false, "h2": false, "HTTP/2.0": false, "TLS/1.2, HTTP/1.1": false,
	} {
		if got := MayUpgrade(protocols); got != want {
			t.Errorf("MayUpgrade(%q) is %v, want %v", protocols, got, want)
		}
	}
	for _, c := range []struct {
		protocols, chosen string
		want              bool
	}{{"a, Echo/1", "echo/1", true}, {"a", "b", false}, {"a", "", false}, {"", "", false}} {
		if got := Offered(c.protocols, c.chosen); got != c.want {
			t.Errorf("Offered(%q, %q) is %v, want %v", c.protocols, c.chosen, got, c.want)
		}
	}
}

// Guarantee: a request that has passed through this instance is found by its Via, in any
// position, and no other.
func TestNamesInstance(t *testing.T) {
	t.Parallel()
	for via, want := range map[string]bool{
		"1.1 us": true, "1.0 a, 1.1  us": true, "HTTP/1.1 us (comment)": true, "1.1 a,2.0 us ,1.1 b": true,
		"": false, "us": false, "1.1 usual": false, "1.1 a us": false, "1.1 a, us": false,
	} {
		if got := NamesInstance(via, "us"); got != want {
			t.Errorf("NamesInstance(%q) is %v, want %v", via, got, want)
		}
	}
}

// Guarantee: contract 4.4: GET, HEAD, OPTIONS, PUT and DELETE without a body are retried, and no
// other requests.
func TestRetryable(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]bool{
		"GET": true, "HEAD": true, "OPTIONS": true, "PUT": true, "DELETE": true,
		"POST": false, "PATCH": false, "PURGE": false, "get": false,
	} {
		if got := Retryable(method, false); got != want {
			t.Errorf("%s without a body is retried: %v, want %v", method, got, want)
		}
		if Retryable(method, true) {
			t.Errorf("%s with a body is retried", method)
		}
	}
}
