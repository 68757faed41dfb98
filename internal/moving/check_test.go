package moving_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/moving"
)

// checkOf returns a check against files, whose routes have the method GET and those given.
func checkOf(t testing.TB, hostname string, files ...string) *moving.Check {
	t.Helper()
	var documents []*gateway.Document
	for _, f := range files {
		d, err := gateway.ParseDocument([]byte(f))
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, d)
	}
	c, err := moving.NewCheck(documents, []moving.Origin{
		{Gateway: "main", Path: "/orders", Methods: []string{"GET"}, Name: "orders", ID: "1"},
		{Gateway: "main", Path: "/all/*", Methods: []string{"GET"}, Name: "all"},
	}, hostname)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const mainFile = `gateway: {name: main, upstream_url: "http://a.internal"}
routes:
- {path: /orders, methods: [GET, POST]}
- {path: "/all/*", methods: [GET]}
- {path: "/users/{id}", methods: [PUT]}
`

const hostFile = `gateway: {name: host, hostname: api.example, upstream_url: "http://b.internal", allow_encoded_slashes: true, cors: {origins: ["*"]}}
routes:
- {path: "/{file}", methods: [GET]}
`

// Guarantee: edge.md, section 5: a check says of each request what a server with the files would do with its path and method, and
// whether another route than before takes it. Requests that would get the same status are not listed.
func TestChecks(t *testing.T) {
	kong := func(method, uri, host string, status int, id, name string) string {
		return fmt.Sprintf(`{"request": {"method": %q, "uri": %q, "headers": {"host": %q, "authorization": "secret"}}, "response": {"status": %d}, "route": {"id": %q, "name": %q}}`, method, uri, host, status, id, name)
	}
	combined := func(request string, status int) string {
		return `192.0.2.1 - ada [30/Nov/2026:10:00:00 +0000] "` + request + `" ` + strconv.Itoa(status) + ` 12 "https://a.example/" "curl"`
	}
	for line, want := range map[string]string{
		combined("GET /orders HTTP/1.1", 200):                          "",
		combined("HEAD /orders HTTP/1.1", 200):                         "",
		combined("GET /orders?a=/../b HTTP/1.1", 200):                  "",
		combined("GET http://other.example/orders HTTP/1.1", 200):      "",
		combined("GET http://api.example/orders/1 HTTP/1.1", 200):      "404 GET api.example/orders/1",
		combined("GET https://api.example HTTP/1.1", 200):              "404 GET api.example/",
		combined("GET /%6frders HTTP/1.1", 200):                        "",
		combined("DELETE /orders HTTP/1.1", 204):                       "405 DELETE /orders",
		combined("DELETE /orders HTTP/1.1", 405):                       "",
		combined("GET /nowhere HTTP/1.1", 200):                         "404 GET /nowhere",
		combined("GET /nowhere HTTP/1.1", 404):                         "",
		combined("GET /nowhere HTTP/1.1", 401):                         "",
		combined("GET /nowhere HTTP/1.1", 403):                         "404 GET /nowhere",
		combined("GET /all//x HTTP/1.1", 200):                          "400 GET /all//x",
		combined("GET /all/a%2fb HTTP/1.1", 200):                       "400 GET /all/a%2fb",
		combined(`GET /all/\x22x\x22 HTTP/1.1`, 200):                   "",
		combined("POST /users/7 HTTP/2.0", 200):                        "405 POST /users/7",
		combined(`\x16\x03\x01`, 400):                                  "unread",
		combined("GET /orders", 200):                                   "unread",
		combined("GET  HTTP/1.1", 200):                                 "400 GET ",
		"nothing":                                                      "unread",
		`{"message": "starting"}`:                                      "unread",
		`{"request": {"method": "GET"}, "response": {"status": 200}}`:  "unread",
		`{"request": {"method": "GET", "uri": 5}}`:                     "unread",
		kong("GET", "/orders?x", "x.example:8443", 200, "1", "orders"): "",
		kong("GET", "/orders", "x.example", 200, "2", "orders"):        "route GET /orders orders orders",
		kong("GET", "/all/x", "x.example", 200, "9", "all"):            "",
		kong("GET", "/all/x", "x.example", 200, "9", "deep"):           "route GET /all/x all deep",
		kong("GET", "/all/x", "x.example", 200, "9", ""):               "",
		kong("PUT", "/users/7", "x.example", 200, "9", "users"):        "",
		kong("GET", "/file", "API.example.:8443", 200, "9", "files"):   "",
		kong("GET", "/a%2fb", "api.example", 200, "9", "files"):        "",
		kong("OPTIONS", "/file", "api.example", 200, "9", "files"):     "",
		kong("POST", "/file", "api.example", 200, "9", "files"):        "405 POST api.example/file",
		`{"RequestMethod": "GET", "RequestHost": "api.example", "RequestPath": "/a/b?c", "DownstreamStatus": 200}`: "404 GET api.example/a/b",
		`{"RequestMethod": "GET", "RequestHost": "api.example", "RequestPath": "/a"}`:                              "unread",
	} {
		c := checkOf(t, "", mainFile, hostFile)
		c.Add([]byte(line + "\r\n"))
		got := ""
		if c.Unread > 0 {
			got = "unread"
		}
		for _, f := range c.Findings() {
			got += strings.TrimSuffix(fmt.Sprintf("%s %s %s%s %s %s", f.Status, f.Method, f.Host, f.Path, f.Is, f.Was), "  ")
		}
		if got != want || c.Requests+c.Unread != 1 {
			t.Errorf("%s: got %q, %d requests, want %q", line, got, c.Requests, want)
		}
	}
}

// Guarantee: requests whose lines have no host are for the one that is given, for the gateway without a hostname, or the only one.
func TestHostsOfChecks(t *testing.T) {
	const line = `192.0.2.1 - - [30/Nov/2026:10:00:00 +0000] "GET /orders HTTP/1.1" 200 12 "-" "curl"`
	for _, c := range []struct {
		hostname string
		files    []string
		want     int
	}{
		{"", []string{mainFile, hostFile}, 0},
		{"", []string{hostFile}, 0},
		{"", []string{strings.Replace(hostFile, "/{file}", "/x/{file}", 1)}, 1},
		{"API.example", []string{mainFile, strings.Replace(hostFile, "/{file}", "/x/{file}", 1)}, 1},
	} {
		check := checkOf(t, c.hostname, c.files...)
		check.Add([]byte(line))
		if got := len(check.Findings()); got != c.want {
			t.Errorf("hostname %q: got %d findings, want %d", c.hostname, got, c.want)
		}
	}
	if _, err := moving.NewCheck(nil, nil, "gone.example"); err == nil || !strings.Contains(err.Error(), "no gateway of the files has the hostname gone.example") {
		t.Errorf("got %v", err)
	}
}

// Guarantee: docs/limits.md: a check keeps a bounded number of findings, whatever the log, and counts the rest.
func TestChecksAreBounded(t *testing.T) {
	c := checkOf(t, "", mainFile)
	for i := range moving.MaxFindings + 5 {
		c.Add(fmt.Appendf(nil, `a [x] "GET /n/%d HTTP/1.1" 200`, i))
	}
	c.Add([]byte(`a [x] "GET /n/1 HTTP/1.1" 200`))
	c.AddLong()
	list := c.Findings()
	if len(list) != moving.MaxFindings || c.Beyond != 5 || c.Unread != 1 || c.FirstUnread != moving.MaxFindings+7 || list[0].Requests != 2 || list[0].Path != "/n/1" {
		t.Errorf("got %d findings, %d beyond, %d unread from line %d, first %+v", len(list), c.Beyond, c.Unread, c.FirstUnread, list[0])
	}
}

// FuzzCheck reads any line: it is counted once, and its findings have a status that is known.
func FuzzCheck(f *testing.F) {
	for _, line := range []string{`a [x] "GET /n HTTP/1.1" 200`, `{"request": {"method": "GET", "uri": "/a", "headers": {"host": ["h"]}, "url": "http://h:1/"}, "response": {"status": 200}}`, `{"RequestMethod": "GET"}`} {
		f.Add([]byte(line))
	}
	c := checkOf(f, "", mainFile, hostFile)
	f.Fuzz(func(t *testing.T, line []byte) {
		before := c.Requests + c.Unread
		c.Add(line)
		if after := c.Requests + c.Unread; after > before+1 {
			t.Errorf("%q is counted %d times", line, after-before)
		}
		for _, one := range c.Findings() {
			if one.Status != "400" && one.Status != "404" && one.Status != "405" && one.Status != moving.OtherRoute {
				t.Errorf("got the status %q", one.Status)
			}
		}
	})
}

// Guarantee: what says where routes come from is read as it was written.
func TestOrigins(t *testing.T) {
	d, err := moving.ReadKong("kong.yaml", []byte("_format_version: '3.0'\nservices:\n- {name: s, url: 'http://s.internal', routes: [{name: 'r <1>', id: '7', paths: [/a]}, {paths: [/b]}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := moving.Kong(d)
	if err != nil {
		t.Fatal(err)
	}
	text, err := r.OriginsText()
	if err != nil {
		t.Fatal(err)
	}
	list, err := moving.ReadOrigins(text)
	if err != nil || len(list) != 2 || list[0].Name != "r <1>" || list[0].ID != "7" || list[0].Gateway != "kong" || list[0].Path != "/a" {
		t.Errorf("got %+v, %v of %s", list, err, text)
	}
	if _, err := moving.ReadOrigins([]byte("x")); err == nil || !strings.Contains(err.Error(), "is not a file of origins") {
		t.Errorf("got %v", err)
	}
}
