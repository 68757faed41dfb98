package enginetest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/http1"
)

// Guarantee: contract 3.3, upstream_host. Whatever the versions of HTTP, the upstream gets the Host that the setting
// says. With target or a name, URLs of the upstream's own origin in Location, Content-Location and Refresh come back
// with the client's scheme and host, in interim responses too; any other URL and field is passed on as it is. With
// preserve, all of them are.
func TestUpstreamHost(t *testing.T) {
	overUpstreams(t, func(*testing.T) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for name, values := range r.URL.Query() {
				w.Header()[name] = values
			}
			w.Header().Set("X-Host", r.Host)
			if r.URL.Path == "/interim" {
				w.WriteHeader(http.StatusEarlyHints)
			}
			w.WriteHeader(http.StatusFound)
		}
	}, func(t *testing.T, s setup, client http.RoundTripper) {
		at, err := url.Parse(s.upstream)
		if err != nil {
			t.Fatal(err)
		}
		scheme, port := "http", ":"+at.Port()
		if at.Scheme == "https" {
			scheme = "https"
		}
		for _, c := range []struct{ setting, host string }{
			{"", at.Host}, {"Shop.Example.com:8443", "Shop.Example.com:8443"}, {"shop.example.com", "shop.example.com"}, {gateway.PreserveHost, "Api.Test:77"},
		} {
			s.host = c.setting
			g := start(t, s)
			own := scheme + "://" + c.host
			const reached = "http://Api.Test:77"
			urls := map[string]string{ // sent, and as it must arrive
				own + "/a?b#c": reached + "/a?b#c", own: reached, own + "?x": reached + "?x", strings.ToUpper(own) + "/A": reached + "/A",
				"//" + c.host + "/a":                "//Api.Test:77/a",
				"/a":                                "/a",
				"a://b":                             "a://b",
				"?u=" + own:                         "?u=" + own,
				"/" + own:                           "/" + own,
				"ftp://" + c.host + "/":             "ftp://" + c.host + "/",
				scheme + "://user@" + c.host + "/":  scheme + "://user@" + c.host + "/",
				scheme + "://x" + c.host + "/":      scheme + "://x" + c.host + "/",
				scheme + "://" + c.host + ".x/":     scheme + "://" + c.host + ".x/",
				scheme + "://" + c.host + `\@evil/`: reached + `\@evil/`,
				"http://other.example.com" + port:   "http://other.example.com" + port,
				scheme + ":" + c.host:               scheme + ":" + c.host,
				"":                                  "",
			}
			if c.host == "shop.example.com" {
				urls[own+":"+map[string]string{"http": "80", "https": "443"}[scheme]+"/"] = reached + "/"
				urls[own+":81/"] = own + ":81/"
			}
			for sent, want := range urls {
				if c.setting == gateway.PreserveHost {
					want = sent
				}
				for _, path := range []string{"/", "/interim"} {
					head, interim := g.redirect(t, client, path, url.Values{
						"Location": {sent}, "Content-Location": {sent}, "Refresh": {"5; URL=" + sent, `0;url="` + sent + `"`, strings.TrimRight("3,  "+sent, " ")}, "Link": {"<" + sent + ">"}, "X-Location": {sent},
					})
					if got := head.Get("X-Host"); got != c.host {
						t.Fatalf("upstream_host %q: the upstream got Host %q, want %q", c.setting, got, c.host)
					}
					for _, h := range []http.Header{head, interim} {
						if h == nil {
							continue
						}
						refresh := strings.Join(h.Values("Refresh"), "|")
						if h.Get("Location") != want || h.Get("Content-Location") != want || refresh != "5; URL="+want+`|0;url="`+want+`"|`+strings.TrimRight("3,  "+want, " ") {
							t.Errorf("upstream_host %q, %q: got Location %q, Content-Location %q, Refresh %q; want %q in each", c.setting, sent, h.Get("Location"), h.Get("Content-Location"), refresh, want)
						}
						if h.Get("Link") != "<"+sent+">" || h.Get("X-Location") != sent {
							t.Errorf("upstream_host %q, %q: got Link %q, X-Location %q; want them as they were", c.setting, sent, h.Get("Link"), h.Get("X-Location"))
						}
					}
				}
			}
		}
	})
}

// redirect makes a request for Api.Test:77, and returns the heads of the response and of the interim one.
func (g *harness) redirect(t *testing.T, client http.RoundTripper, path string, fields url.Values) (head, interim http.Header) {
	t.Helper()
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		interim = http.Header(h)
		return nil
	}})
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+g.addr+path+"?"+fields.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "Api.Test:77"
	req.Header.Set("Authorization", "Bearer "+g.key)
	resp, err := client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusFound {
		content, _ := io.ReadAll(resp.Body)
		t.Fatalf("got %s %s, want 302", resp.Status, content)
	}
	if path == "/interim" && interim == nil {
		t.Fatal("got no interim response, want one")
	}
	return resp.Header, interim
}

// Guarantee: contract 3.3, upstream_host. Behind a trusted proxy, URLs of the upstream come back with the scheme and
// host by which that proxy was addressed; fields of any other client change nothing.
func TestUpstreamHostBehindAProxy(t *testing.T) {
	t.Parallel()
	upstream := plainUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+r.Host+"/b", http.StatusFound)
	})
	for _, c := range []struct {
		trusted bool
		fields  []string
		want    string
	}{
		{true, []string{"X-Forwarded-Proto: https", "X-Forwarded-Host: www.test"}, "https://www.test/b"},
		{true, []string{"X-Forwarded-Proto: HTTPS, http", "X-Forwarded-Host: www.test , inner.test"}, "https://www.test/b"},
		{true, []string{"X-Forwarded-Proto: https"}, "https://api.test/b"},
		{true, []string{"X-Forwarded-Proto: javascript", "X-Forwarded-Host: www.test/evil"}, "http://api.test/b"},
		{true, []string{"X-Forwarded-Host: user@www.test"}, "http://api.test/b"},
		{true, []string{"X-Forwarded-Host: " + strings.Repeat("w", http1.MaxAuthority+1)}, "http://api.test/b"},
		{false, []string{"X-Forwarded-Proto: https", "X-Forwarded-Host: www.test"}, "http://api.test/b"},
	} {
		g := start(t, setup{upstream: upstream, trusted: c.trusted})
		client := g.dial(t)
		client.request(g, "GET /a HTTP/1.1", c.fields...)
		if got := client.head().get("location"); got != c.want {
			t.Errorf("trusted %v, %q: got Location %q, want %q", c.trusted, c.fields, got, c.want)
		}
	}
}

// Guarantee: docs/limits.md, Host of a request. Whatever the version of HTTP, a client cannot choose a host with which
// the head of a response that has it in each field takes megabytes.
func TestLongHostIsRefused(t *testing.T) {
	const fields = 400
	var location string
	upstream := plainUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		for range fields {
			w.Header().Add("Location", location)
		}
	})
	location = strings.TrimPrefix(upstream, "http:")
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		g := start(t, setup{upstream: upstream})
		for _, c := range []struct{ length, status int }{{http1.MaxAuthority, 200}, {50_000, 400}} {
			req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+g.addr+"/a", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = "api.test:" + strings.Repeat("0", c.length-len("api.test:"))
			req.Header.Set("Authorization", "Bearer "+g.key)
			resp, err := client.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != c.status {
				t.Errorf("a host of %d bytes: got %s, want %d", c.length, resp.Status, c.status)
			}
			if got := resp.Header.Values("Location"); c.status == http.StatusOK && (len(got) != fields || got[0] != "//"+req.Host) {
				t.Errorf("got %d fields, the first %q, want %d with the client's host", len(got), got, fields)
			}
		}
	})
}

// Guarantee: contract 3.3, error_format. Whatever the version of HTTP, the gateway's own errors have the form of the
// setting, with the statuses and fields of the other forms.
func TestErrorFormats(t *testing.T) {
	upstream := plainUpstream(t, func(http.ResponseWriter, *http.Request) {})
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		heads := map[string]http.Header{}
		for _, format := range fault.Formats() {
			g := start(t, setup{upstream: upstream, errors: fault.Format(format), limit: "1/day"})
			for _, want := range []int{200, 429, 401} {
				key := g.key
				if want == 401 {
					key = "kg_unknown"
				}
				req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+g.addr+"/", nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer "+key)
				resp, err := client.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				content, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != want {
					t.Fatalf("%s: got %s, %v; want %d", format, resp.Status, err, want)
				}
				if want == 200 {
					continue
				}
				var body struct {
					Error  any
					Detail string
					Status int
				}
				if err := json.Unmarshal(content, &body); err != nil {
					t.Fatal(err)
				}
				_, isObject := body.Error.(map[string]any)
				isProblem := resp.Header.Get("Content-Type") == "application/problem+json"
				if isObject != (format == "openai") || isProblem != (format == "problem") || isProblem != (body.Status == want && body.Detail != "") {
					t.Errorf("%s: got %s %s", format, resp.Header.Get("Content-Type"), content)
				}
				names := http.Header{}
				for name := range resp.Header {
					names[name] = nil
				}
				id := http.StatusText(want)
				if heads[id] == nil {
					heads[id] = names
				}
				for name := range names {
					if _, has := heads[id][name]; !has {
						t.Errorf("%s: got the field %s, which the first form has not", format, name)
					}
				}
			}
		}
	})
}
