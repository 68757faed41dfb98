package gateway

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: edge.md, 2: what a route does with its requests is checked; an error names the field.
func TestHandlingIsChecked(t *testing.T) {
	redirect := func(to string, status int64, path, query bool) *Handling {
		return &Handling{Redirect: &Redirect{To: to, Status: status, KeepPath: path, KeepQuery: query}}
	}
	for _, c := range []struct {
		name, path string
		h          *Handling
		field      string // "" for none
	}{
		{"nothing", "/a", nil, ""},
		{"a prefix", "/api/orders", &Handling{StripPrefix: "/api"}, ""},
		{"the whole path", "/api", &Handling{StripPrefix: "/api"}, ""},
		{"a path with a final slash", "/api/", &Handling{StripPrefix: "/api"}, ""},
		{"everything below", "/api/*", &Handling{StripPrefix: "/api"}, ""},
		{"a parameter", "/{tenant}/orders", &Handling{StripPrefix: "/{tenant}"}, ""},
		{"a part of a segment", "/apis/orders", &Handling{StripPrefix: "/api"}, "strip_prefix"},
		{"another path", "/orders", &Handling{StripPrefix: "/api"}, "strip_prefix"},
		{"another parameter", "/{tenant}/orders", &Handling{StripPrefix: "/{id}"}, "strip_prefix"},
		{"no slash", "/api", &Handling{StripPrefix: "api"}, "strip_prefix"},
		{"a final slash", "/api/x", &Handling{StripPrefix: "/api/"}, "strip_prefix"},
		{"no segment", "/api", &Handling{StripPrefix: "/"}, "strip_prefix"},
		{"the wildcard", "/api/*", &Handling{StripPrefix: "/api/*"}, "strip_prefix"},

		{"a URL", "/a", redirect("https://example.com/new?a=b#c", 301, false, false), ""},
		{"a path", "/a", redirect("/new?a=b", 302, false, false), ""},
		{"an address", "/a", redirect("http://[::1]:8080", 307, true, true), ""},
		{"with the query", "/a", redirect("/new", 308, false, true), ""},
		{"no status", "/a", redirect("/new", 0, false, false), "redirect.status"},
		{"303", "/a", redirect("/new", 303, false, false), "redirect.status"},
		{"no target", "/a", redirect("", 308, false, false), "redirect.to"},
		{"an authority alone", "/a", redirect("//example.com", 308, false, false), "redirect.to"},
		{"another scheme", "/a", redirect("javascript:alert(1)", 308, false, false), "redirect.to"},
		{"no host", "/a", redirect("https:///x", 308, false, false), "redirect.to"},
		{"a user", "/a", redirect("https://a:b@example.com", 308, false, false), "redirect.to"},
		{"a port of letters", "/a", redirect("https://example.com:https", 308, false, false), "redirect.to"},
		{"a line break", "/a", redirect("https://example.com/\r\nX: y", 308, false, false), "redirect.to"},
		{"a variable", "/a", redirect("https://example.com/${owner}", 308, false, false), "redirect.to"},
		{"a backslash", "/a", redirect(`/\example.com`, 308, false, false), "redirect.to"},
		{"other characters", "/a", redirect("/ä", 308, false, false), "redirect.to"},
		{"a path beside that of the request", "/a", redirect("https://example.com/", 308, true, false), "redirect.to"},
		{"a path for that of the request", "/a", redirect("/new", 308, true, false), "redirect.to"},
		{"a query beside that of the request", "/a", redirect("/new?a", 308, false, true), "redirect.to"},
		{"too long", "/a", redirect("/"+strings.Repeat("a", MaxRedirectTo), 308, false, false), "redirect.to"},
		{"beside respond", "/a", &Handling{Redirect: &Redirect{To: "/b", Status: 308}, Respond: &Respond{Status: 200}}, "redirect"},

		{"a status", "/a", &Handling{Respond: &Respond{Status: 204}}, ""},
		{"a body", "/a", &Handling{Respond: &Respond{Status: 599, ContentType: "text/plain", Body: strings.Repeat("a", MaxRespondBody), Headers: map[string]string{"X-A": "b"}}}, ""},
		{"100", "/a", &Handling{Respond: &Respond{Status: 100}}, "respond.status"},
		{"600", "/a", &Handling{Respond: &Respond{Status: 600}}, "respond.status"},
		{"a body of a 304", "/a", &Handling{Respond: &Respond{Status: 304, ContentType: "text/plain", Body: "a"}}, "respond.body"},
		{"a large body", "/a", &Handling{Respond: &Respond{Status: 200, ContentType: "text/plain", Body: strings.Repeat("a", MaxRespondBody+1)}}, "respond.body"},
		{"a body of no type", "/a", &Handling{Respond: &Respond{Status: 200, Body: "a"}}, "respond.content_type"},
		{"a type of no body", "/a", &Handling{Respond: &Respond{Status: 200, ContentType: "text/plain"}}, "respond.content_type"},
		{"no type", "/a", &Handling{Respond: &Respond{Status: 200, ContentType: "text", Body: "a"}}, "respond.content_type"},
		{"a type with a line break", "/a", &Handling{Respond: &Respond{Status: 200, ContentType: "text/plain\r\nX: y", Body: "a"}}, "respond.content_type"},
		{"the type as a header", "/a", &Handling{Respond: &Respond{Status: 200, Headers: map[string]string{"content_type": "a"}}}, "respond.headers.content_type"},
		{"a line break", "/a", &Handling{Respond: &Respond{Status: 200, Headers: map[string]string{"X-A": "a\nb"}}}, "respond.headers.X-A"},
		{"no name", "/a", &Handling{Respond: &Respond{Status: 200, Headers: map[string]string{"X A": "a"}}}, "respond.headers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkHandling(t, c.h, c.path, c.field)
		})
	}
	for _, name := range []string{
		"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Proxy-Connection", "X-Keygate-Key-Id", "x_keygate_owner",
		"X-Forwarded-For", "Forwarded", "Via", "Retry-After", "X-RateLimit-Limit", "RateLimit", "RateLimit-Policy", "X-Request-Id", "Date", "Authorization", "Grpc-Timeout", "Sec-WebSocket-Key", "RateLimit-Other", "x_keygate",
	} {
		t.Run(name, func(t *testing.T) {
			checkHandling(t, &Handling{Respond: &Respond{Status: 200, Headers: map[string]string{name: "a"}}}, "/a", "respond.headers."+name)
			checkHandling(t, &Handling{RequestHeaders: &HeaderRules{Set: map[string]string{name: "a"}}}, "/a", "request_headers.set."+name)
			checkHandling(t, &Handling{RequestHeaders: &HeaderRules{Remove: []string{"X-A", name}}}, "/a", "request_headers.remove[1]")
			checkHandling(t, &Handling{ResponseHeaders: &HeaderRules{Set: map[string]string{name: "a"}}}, "/a", "response_headers.set."+name)
			checkHandling(t, &Handling{ResponseHeaders: &HeaderRules{Remove: []string{name}}}, "/a", "response_headers.remove[0]")
		})
	}
}

// checkHandling fails the test unless the one problem of h is of the field; "" for no problem.
func checkHandling(t *testing.T, h *Handling, path, field string) {
	t.Helper()
	problems := fault.ProblemsOf(h.Check(path))
	switch {
	case field == "" && problems != nil:
		t.Errorf("got %v, want no problem", problems)
	case field != "" && (len(problems) != 1 || problems[0].Field != field || problems[0].Message == ""):
		t.Errorf("got %v, want one of %s", problems, field)
	}
	table := CheckTable([]RouteSpec{{Path: path, Methods: []string{"GET"}, Handling: h}})
	if len(table) != len(problems) || len(table) == 1 && table[0].Field != field {
		t.Errorf("as a route: got %v, want as alone", table)
	}
}

// Guarantee: what the gateway's routes do with requests is bounded together; equal ones count once.
func TestHandlingsOfATableAreBounded(t *testing.T) {
	large := func(i int) *Handling {
		return &Handling{Respond: &Respond{Status: 200, ContentType: "text/plain", Body: fmt.Sprint(i) + strings.Repeat("a", MaxRespondBody-10)}}
	}
	var routes []RouteSpec
	for i := range 100 {
		routes = append(routes, RouteSpec{Path: fmt.Sprintf("/a%d", i), Methods: []string{"GET"}, Handling: large(i % 60)})
	}
	if problems := CheckTable(routes); problems != nil {
		t.Errorf("60 different bodies: got %v", problems)
	}
	routes = append(routes, RouteSpec{Path: "/b", Methods: []string{"GET"}, Handling: large(61)})
	for i := range 10 {
		routes[i].Handling = large(100 + i)
	}
	if problems := CheckTable(routes); len(problems) == 0 || problems[0].Field != "strip_prefix" || !strings.Contains(problems[0].Message, "4 MiB") {
		t.Errorf("71 different bodies: got %v, want the bound", problems)
	}
}

// Guarantee: a configuration file has what routes do with their requests as it is: what is written is read again.
func TestHandlingsInFiles(t *testing.T) {
	text := func(t *rapid.T, name string) string {
		return rapid.StringOfN(rapid.RuneFrom([]rune("aé\"\\{}[],:#&*!|>'%@` \t\n-?~")), 0, 20, -1).Draw(t, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		h := &Handling{}
		if rapid.Bool().Draw(t, "strips") {
			h.StripPrefix = rapid.SampledFrom([]string{"/a", "/a/{b}"}).Draw(t, "prefix")
		}
		switch rapid.IntRange(0, 2).Draw(t, "own") {
		case 1:
			h.Redirect = &Redirect{To: "https://example.com", Status: 308, KeepPath: rapid.Bool().Draw(t, "path"), KeepQuery: rapid.Bool().Draw(t, "query")}
		case 2:
			h.Respond = &Respond{Status: rapid.Int64Range(205, 299).Draw(t, "status")}
			if h.Respond.Body = text(t, "body"); h.Respond.Body != "" && h.Respond.Status != 205 {
				h.Respond.ContentType = "text/plain; charset=utf-8"
			} else {
				h.Respond.Body = ""
			}
			if rapid.Bool().Draw(t, "headers") {
				h.Respond.Headers = map[string]string{"X-A": "1, {a}", "x.b": "yes"}
			}
		}
		d := &Document{Routes: []RouteSpec{{Path: "/a/{b}/c", Methods: []string{"GET"}, Handling: h.Stored()}}}
		file := d.Encode()
		got, err := ParseDocument(file)
		if err != nil {
			t.Fatalf("%v\n%s", err, file)
		}
		if !reflect.DeepEqual(got.Routes, d.Routes) || !got.Routes[0].Handling.Equal(d.Routes[0].Handling) {
			t.Fatalf("got %+v, want %+v, of\n%s", got.Routes[0].Handling, h, file)
		}
	})
}

// Guarantee: a mistake in a file is reported with its position, and a field of a handling can be null.
func TestMistakesOfHandlingsInFiles(t *testing.T) {
	for file, want := range map[string]string{
		"strip_prefix: /b":                           "line 4, column 19",
		"strip_prefix: \"\"":                         "must not be empty",
		"strip_prefix: 1":                            "strip_prefix",
		"redirect: {to: /b}":                         "redirect.status",
		"redirect: {to: /b, status: 303}":            "must be 301, 302, 307 or 308",
		"redirect: {to: /b, status: 308, path: 1}":   "is not a field of redirect: use to, status, keep_path, keep_query",
		"redirect: [/b]":                             "redirect",
		"respond: {body: a, content_type: a/b}":      "respond.status",
		"respond: {status: 200, headers: {Host: a}}": "respond.headers.Host",
		"respnd: {status: 200}":                      "respond",
	} {
		_, err := ParseDocument([]byte("routes:\n  - path: /a\n    methods: [GET]\n    " + file + "\n"))
		if err == nil || !strings.Contains(fmt.Sprint(fault.ProblemsOf(err)), want) {
			t.Errorf("%s: got %v, want %q in it", file, fault.ProblemsOf(err), want)
		}
	}
	d, err := ParseDocument([]byte("routes: [{path: /a, methods: [GET], strip_prefix: null, redirect: null, respond: null}]"))
	if err != nil || d.Routes[0].Handling != nil {
		t.Errorf("null: got %v %v, want no handling", d, err)
	}
}

// Guarantee: edge.md, 2: as many segments are cut off as a prefix has, in the bytes as they came; what is left begins with a
// slash and with neither an encoded slash nor a backslash.
func TestSegmentsAreStripped(t *testing.T) {
	for _, c := range []struct {
		path string
		n    int
		want string // "" if it is refused
	}{
		{"/api", 1, "/"},
		{"/api/", 1, "/"},
		{"/api/x", 1, "/x"},
		{"/%61pi/x%20y/", 1, "/x%20y/"},
		{"/a/b", 2, "/"},
		{"/a%2Fb/c", 1, "/c"},
		{"/api/x%2fy", 1, "/x%2fy"},
		{"/api/%2fx", 1, ""},
		{"/api/%2Fx", 1, ""},
		{"/api/%5cx", 1, ""},
		{"/api/%2f", 1, ""},
		{"/api/%2", 1, "/%2"},
		{"/api/%25", 1, "/%25"},
	} {
		if got, ok := StripSegments(c.path, c.n); got != c.want || ok != (c.want != "") {
			t.Errorf("%s without %d: got %q %v, want %q", c.path, c.n, got, ok, c.want)
		}
	}
}
