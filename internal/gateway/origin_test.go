package gateway_test

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: an origin is kept in the form in which browsers send it, so that it can match.
func TestOriginsAreNormalized(t *testing.T) {
	for in, want := range map[string]string{
		"*":                         "*",
		"https://app.example.com":   "https://app.example.com",
		"https://app.example:443":   "https://app.example",
		"http://app.example:80":     "http://app.example",
		"http://app.example:443":    "http://app.example:443",
		"https://app.example:08443": "https://app.example:8443",
		"https://app.example:":      "https://app.example",
		"HTTPS://App.Example":       "https://app.example",
		"https://bücher.example":    "https://xn--bcher-kva.example",
		"https://BÜCHER.example":    "https://xn--bcher-kva.example",
		"https://straße.example":    "https://xn--strae-oqa.example",
		"https://日本.example:443":    "https://xn--wgv71a.example",
		"https://a_b.example":       "https://a_b.example",
		"https://app.example.":      "https://app.example.",
		"http://localhost:3000":     "http://localhost:3000",
		"http://192.0.2.1:80":       "http://192.0.2.1",
		"http://[::1]:80":           "http://[::1]",
		"http://[2001:DB8:0::1]:81": "http://[2001:db8::1]:81",
		"capacitor://localhost":     "capacitor://localhost",
		"moz-extension://0c1-2":     "moz-extension://0c1-2",
	} {
		c := gateway.CORS{Origins: []string{in}}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: got %v, want it taken", in, err)
		}
		normal := c.Normal()
		if normal.Origins[0] != want || c.Origins[0] != in {
			t.Errorf("%s: got %s, want %s and the given settings unchanged", in, normal.Origins[0], want)
		}
		if again := normal.Normal(); again.Origins[0] != want || normal.Validate() != nil {
			t.Errorf("%s: got %s of its normal form, want the same", in, again.Origins[0])
		}
	}
}

// Guarantee: an origin that browsers never send is rejected, and the message says what to write.
func TestOriginsThatNeverMatchAreRejected(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "must be an origin",
		"app":                       "must be an origin",
		"app.example.com":           "write the scheme too, as in https://app.example.com",
		"app.example.com:8443":      "write the scheme too, as in https://app.example.com:8443",
		"https://app.example/":      "no slash at its end",
		"https://app.example/login": "no path",
		"https://*.example.com":     "list each origin",
		"null":                      "sandboxed page",
		"wss://app.example":         "http or https",
		"https://user@app.example":  "must be an origin",
		"https://app.example:65536": "between 0 and 65535",
		"http://127.1":              "four numbers",
		"https://a%20b.example":     "must be an origin",
		"“https://app.example”":     "a typographic quote",
		"https://app.example, *":    "must be an origin",
	} {
		c := gateway.CORS{Origins: []string{in}}
		problems := fault.ProblemsOf(c.Validate())
		if len(problems) != 1 || problems[0].Field != "origins[0]" || !strings.Contains(problems[0].Message, want) {
			t.Errorf("%q: got %+v, want one problem with %q", in, problems, want)
		}
	}
	for in, want := range map[string]string{"get": "upper case", "ANY": "* for all", "TRACE": "never send", "GET, POST": "upper case"} {
		c := gateway.CORS{Origins: []string{"*"}, Methods: []string{in}}
		if problems := fault.ProblemsOf(c.Validate()); len(problems) != 1 || !strings.Contains(problems[0].Message, want) {
			t.Errorf("the method %q: got %+v, want one problem with %q", in, problems, want)
		}
	}
}

// Guarantee: the file's author is warned of a route that means something else in another router's language.
func TestWarningsOfRoutes(t *testing.T) {
	d, err := gateway.ParseDocument([]byte(`routes:
  - {path: "/a/:id", methods: [GET]}
  - {path: "/b/:name/x", methods: [GET]}
  - {path: "/c/{proxy+}", methods: [GET]}
  - {path: "/d/{id:[0-9]+}", methods: [GET]}
  - {path: "/e/<id>", methods: [ANY]}
  - {path: "/f", methods: [GET], auth: none, rate_limit: {sustained: 1/s, per: key}}
  - {path: "/ok/{id}.json", methods: [GET, PROPFIND]}
  - {path: "/v1/things:batch", methods: [POST]}
  - {path: "/über/*", methods: [POST]}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"routes[0].path (/a/:id) has :name in a segment, which is plain text here: write {name} for a parameter (2 of these)",
		"routes[2].path (/c/{proxy+}) has a parameter of the form {name+}, and matches one segment alone: end the path in /* for everything below it",
		"routes[3].path (/d/{id:[0-9]+}) has a pattern in a parameter, which is not compared: write {name}, which matches every segment",
		"routes[4].path (/e/<id>) has <name> in a segment, which is plain text here: write {name} for a parameter",
		"routes[4].methods (/e/<id>) ANY is not a method that clients send: list the methods, as in GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
		"routes[5].rate_limit (/f) per: key has no effect on a public route, whose callers have no key: they share the limit. per: address limits each client address",
	}
	if got := d.Warnings(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Guarantee: an upstream or a hostname that cannot be used is rejected, and the error says what to write.
func TestRemediesOfAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"ws://a.example":         "upgrades pass",
		"grpc://a.example":       "h2c:// for gRPC",
		" https://a.example":     "remove the space",
		"https://bücher.example": "punycode",
		"https://a.example/“x”":  "typographic quote",
		"https://{host}":         "no variables",
		"a.example:8080":         "before the host",
		"https://a.example/b c":  "must be a URL",
		"https://a.example?x=1":  "query",
	} {
		if _, err := gateway.ParseUpstreamURL(in); !strings.Contains(fault.MessageOf(err), want) {
			t.Errorf("%q: got %q, want %q", in, fault.MessageOf(err), want)
		}
	}
	for in, want := range map[string]string{"*.example.com": "a * is not supported", "https://a.example": "without a scheme", "a.example:80": "without a port", "bücher.example": "punycode"} {
		if err := gateway.CheckHostname(in); !strings.Contains(fault.MessageOf(err), want) {
			t.Errorf("%q: got %q, want %q", in, fault.MessageOf(err), want)
		}
	}
}
