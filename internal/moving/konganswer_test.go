package moving_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/moving"
)

// Guarantee: edge.md, section 5: the lists of ip-restriction decide for every address as in Kong, where deny always wins, although
// in Keygate the longest prefix does.
func TestListsDecideAsInKong(t *testing.T) {
	networks := rapid.SliceOfN(rapid.SampledFrom([]string{
		"10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3", "10.1.2.3/24", "10.128.0.0/9", "0.0.0.0/0", "192.0.2.1", "2001:db8::/32", "2001:db8::1", "::/0",
	}), 0, 4)
	var addresses []netip.Addr
	for _, text := range []string{"10.0.0.1", "10.1.0.1", "10.1.2.1", "10.1.2.3", "10.200.0.1", "9.9.9.9", "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "2001:db9::1"} {
		addresses = append(addresses, netip.MustParseAddr(text))
	}
	rapid.Check(t, func(t *rapid.T) {
		allow, deny := networks.Draw(t, "allow"), networks.Draw(t, "deny")
		d := documentOf(t, fmt.Sprintf("ip-restriction, config: {allow: %s, deny: %s}", flow(allow), flow(deny)))
		h := d.Routes[0].Handling
		if h == nil {
			h = &gateway.Handling{}
		}
		list, err := addrlist.Compile(addrlist.Lists{Allow: h.AllowIPs, Deny: h.DenyIPs})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addresses {
			want := !listHas(t, deny, a) && (len(allow) == 0 || listHas(t, allow, a))
			if got := list.Allows(a); got != want {
				t.Errorf("allow %v, deny %v: got %t for %s, want %t: %+v", allow, deny, got, a, want, h)
			}
		}
	})
}

func flow(list []string) string {
	if len(list) == 0 {
		return "[]"
	}
	return "['" + strings.Join(list, "', '") + "']"
}

func listHas(t *rapid.T, list []string, a netip.Addr) bool {
	for _, text := range list {
		if !strings.Contains(text, "/") {
			if netip.MustParseAddr(text) == a {
				return true
			}
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			t.Fatal(err)
		}
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// filesOf returns the configuration files for a file of decK.
func filesOf(t fataler, deck string) []moving.File {
	t.Helper()
	d, err := moving.ReadKong("kong.yaml", []byte(deck))
	if err != nil {
		t.Fatal(err)
	}
	r, err := moving.Kong(d)
	if err != nil {
		t.Fatal(err)
	}
	return r.Files
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

// documentOf returns the configuration file for a route with a plugin.
func documentOf(t fataler, plugin string) *gateway.Document {
	t.Helper()
	deck := "_format_version: '3.0'\nservices:\n- {name: s, url: 'http://s.internal', routes: [{name: r, paths: [/], plugins: [{name: " + plugin + "}]}]}\n"
	files := filesOf(t, deck)
	if len(files) != 1 {
		t.Fatal(fmt.Sprintf("%d files", len(files)))
	}
	d, err := gateway.ParseDocument(files[0].Content)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Guarantee: headers that Keygate does not set leave their routes out, and nothing else of the files.
func TestHeadersThatAreNotSet(t *testing.T) {
	for _, header := range []string{"Host: b", "X-Keygate-Key-Id: b", "X A: b", "Content-Length: 1"} {
		if files := filesOf(t, "_format_version: '3.0'\nservices:\n- {name: s, url: 'http://s.internal', routes: [{name: r, paths: [/r], plugins: [{name: request-transformer, config: {add: {headers: ['"+header+"']}}}]}]}\n"); len(files) != 0 {
			t.Errorf("%s: got %s, want no file", header, files[0].Content)
		}
	}
	d := documentOf(t, "request-transformer, config: {add: {headers: ['X-A: b']}}}, {name: request-transformer-advanced, config: {add: {headers: ['X-C: d']}}")
	if h := d.Gateway.UpstreamHeaders.Value; h["X-A"] != "b" || h["X-C"] != "d" {
		t.Errorf("got %v, want those of both plugins", h)
	}
}

// Guarantee: edge.md, section 5: what Kong responds with itself is responded with; what cannot be said so is left out.
func TestAnswersOfKong(t *testing.T) {
	for plugin, want := range map[string]string{
		"request-termination": `{503 application/json; charset=utf-8 {"message":"Service unavailable"}}`,
		`request-termination, config: {status_code: 403, message: 'say "no"'}`:                         `{403 application/json; charset=utf-8 {"message":"say \"no\""}}`,
		"request-termination, config: {status_code: 404}":                                              `{404 application/json; charset=utf-8 {"message":"Not found"}}`,
		"request-termination, config: {status_code: 418}":                                              "{418  }",
		"request-termination, config: {status_code: 204, message: none}":                               "{204  }",
		"request-termination, config: {status_code: 200, body: ok}":                                    "{200 text/plain ok}",
		"request-termination, config: {body: '{\"a\":1}', content_type: application/json}":             `{503 application/json {"a":1}}`,
		"redirect, config: {location: 'https://a.example/b?c=d'}":                                      "https://a.example/b?c=d 301 false false",
		"redirect, config: {location: 'https://a.example/b?c=d', keep_incoming_path: true}":            "https://a.example 301 true true",
		"redirect, config: {location: 'https://a.example', status_code: 308}":                          "https://a.example 308 false false",
		"request-termination, config: {status_code: 100}":                                              "",
		"request-termination, config: {trigger: x-down}":                                               "",
		"request-termination, config: {echo: true}":                                                    "",
		"request-termination, config: {body: '{vault://env/body}'}":                                    "",
		"request-termination, config: {body: x, content_type: text}":                                   "",
		"request-termination, config: {body: '" + strings.Repeat("x", gateway.MaxRespondBody+1) + "'}": "",
		"redirect": "",
		"redirect, config: {location: 'https://a.example', status_code: 303}":             "",
		"redirect, config: {location: 'https://u:p@a.example', keep_incoming_path: true}": "",
		"redirect, config: {location: 'ftp://a.example'}":                                 "",
		"redirect, config: {location: '${{ env \"DECK_TO\" }}'}":                          "",
	} {
		deck := "_format_version: '3.0'\nservices:\n- {name: s, url: 'http://s.internal', routes: [{name: r, paths: [/], plugins: [{name: " + plugin + "}]}]}\n"
		got := ""
		for _, f := range filesOf(t, deck) {
			d, err := gateway.ParseDocument(f.Content)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range d.Routes {
				switch h := r.Handling; {
				case !h.Responds():
					t.Errorf("%s: got a route that forwards", plugin)
				case h.Respond != nil:
					got = fmt.Sprintf("{%d %s %s}", h.Respond.Status, h.Respond.ContentType, h.Respond.Body)
				default:
					got = fmt.Sprint(h.Redirect.To, " ", h.Redirect.Status, " ", h.Redirect.KeepPath, " ", h.Redirect.KeepQuery)
				}
			}
		}
		if got != want {
			t.Errorf("%.100s: got %q, want %q", plugin, got, want)
		}
	}
}
