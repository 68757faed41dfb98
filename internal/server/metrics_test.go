package server_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/keygatetest"
)

// scrape returns what /metrics tells.
func scrape(t *testing.T, s *keygatetest.Server) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.OpsURL()+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("/metrics: %s %v", res.Status, err)
	}
	return string(body)
}

// everything starts a server that has a figure of every kind to tell: TLS, traces,
// a route that passed, one whose upstream fails, one that refused for a limit.
func everything(t *testing.T) *keygatetest.Server {
	t.Helper()
	traces := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	t.Cleanup(traces.Close)
	pair := certificatetest.New(t, "localhost")
	cert, key := pair.Write(t, t.TempDir())
	s := keygatetest.StartWith(t, keygatetest.Options{
		Args: []string{"--tls-cert", cert, "--tls-key", key}, Env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": traces.URL},
	})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fails" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(up.Close)
	g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "g", UpstreamURL: up.URL})
	if err != nil {
		t.Fatal(err)
	}
	auth, once := client.CreateRouteRequestAuthNone, "1/day"
	for _, path := range []string{"/passes", "/fails", "/limited"} {
		r := client.CreateRouteRequest{Path: path, Methods: []string{"GET"}, Auth: &auth}
		if path == "/limited" {
			r.RateLimit = &client.RateLimitInput{Daily: &once}
		}
		if _, err := s.Admin.CreateRoute(t.Context(), g.GatewayID, r); err != nil {
			t.Fatal(err)
		}
	}
	tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pair.Pool(t), ServerName: "localhost"}}
	for path, want := range map[string]int{"/passes": 200, "/fails": 503, "/limited": 429, "/nowhere": 401} {
		for range 2 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(s.GatewayURL(), "http:", "https:", 1)+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			res, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if path != "/limited" && res.StatusCode != want {
				t.Fatalf("%s: %s, want %d", path, res.Status, want)
			}
		}
	}
	return s
}

// families returns the names of the metrics in a text, with their types.
func families(text string) map[string]string {
	out := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		out[m[1]] = m[2]
	}
	return out
}

// Guarantee: docs/metrics.md lists the metrics of a server, each with its type and
// labels, and no others; each metric that the dashboard and the alerts name is
// there.
func TestMetricsAreAsDocumented(t *testing.T) {
	text := scrape(t, everything(t))
	told := families(text)
	guide, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+_[a-z_]+)` \\| ([a-z]+) \\| (.*?)\\| ").FindAllStringSubmatch(string(guide), -1) {
		name, kind, labels := row[1], row[2], row[3]
		documented[name] = true
		if told[name] != kind {
			t.Errorf("docs/metrics.md: %s is a %s; the server tells a %q", name, kind, told[name])
		}
		if got, want := labelsOf(text, name), labelsIn(labels); !slices.Equal(got, want) {
			t.Errorf("docs/metrics.md: %s has the labels %v; the server tells %v", name, want, got)
		}
	}
	for name := range told {
		if !documented[name] && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("docs/metrics.md lacks %s", name)
		}
	}
	for file, expressions := range map[string][]string{"dashboard.json": dashboard(t), "alerts.yaml": alerts(t)} {
		named := 0
		for _, e := range expressions {
			for _, name := range regexp.MustCompile(`\b(keygate|go|process|promhttp)_[a-z_]+`).FindAllString(e, -1) {
				named++
				base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
				if told[name] == "" && told[base] != "histogram" {
					t.Errorf("deploy/grafana/%s: the server does not tell %s: %s", file, name, e)
				}
			}
		}
		if named < len(expressions) || named == 0 {
			t.Errorf("deploy/grafana/%s: %d metrics in %d expressions", file, named, len(expressions))
		}
	}
	for name := range told {
		if strings.HasSuffix(name, "_lost_total") && name != "keygate_log_lost_total" && name != "keygate_traces_lost_total" &&
			!slices.ContainsFunc(alerts(t), func(e string) bool { return strings.Contains(e, name) }) {
			t.Errorf("no alert watches %s", name)
		}
	}
}

// labelsOf returns the labels of a metric's series in a text.
func labelsOf(text, name string) []string {
	labels := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^`+name+`(?:_count)?\{(.*)\} `).FindAllStringSubmatch(text, -1) {
		for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(line[1], -1) {
			labels[l[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(labels))
}

// labelsIn returns the labels that a cell of the guide names: those outside of
// parentheses.
func labelsIn(cell string) []string {
	labels := map[string]bool{}
	for _, l := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(cell, ""), -1) {
		labels[l[1]] = true
	}
	return slices.Sorted(maps.Keys(labels))
}

func dashboard(t *testing.T) (expressions []string) {
	t.Helper()
	content, err := os.ReadFile("../../deploy/grafana/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct{ List []struct{ Definition string } }
	}
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			expressions = append(expressions, target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		if v.Definition != "" {
			expressions = append(expressions, v.Definition)
		}
	}
	return expressions
}

func alerts(t *testing.T) (expressions []string) {
	t.Helper()
	content, err := os.ReadFile("../../deploy/grafana/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			expressions = append(expressions, r.Expr)
		}
	}
	return expressions
}

// Guarantee: neither unknown hosts nor unknown paths, keys or methods make a
// series, and those of a gateway that is deleted are gone at once.
func TestSeriesAreBounded(t *testing.T) {
	s := keygatetest.Start(t)
	up := keygatetest.NewUpstream(t)
	publicGateway(t, s.Admin, up.URL)
	s.Through("", http.MethodGet, "/first", "", "")
	series := func() int {
		return strings.Count(regexp.MustCompile(`(?m)^(#|go_|process_|promhttp_).*\n`).ReplaceAllString(scrape(t, s), ""), "\n")
	}
	// What found no gateway, and what found no route, has one place each.
	outside := func(suffix string) {
		s.Through("nobody"+suffix+".example", http.MethodGet, "/../x"+suffix, "", "")
		s.Through("", "BREW"+suffix, "/"+suffix, "kg_"+suffix, "")
		s.Through("", http.MethodPost, "/"+suffix, "kg_"+suffix, "", "X-"+suffix, "x", "User-Agent", suffix)
	}
	outside("A")
	before := series()
	for i := range 30 {
		outside(strings.Repeat("B", i+1))
		s.Through("", http.MethodGet, "/"+strings.Repeat("c", i+1), "", "")
	}
	if after := series(); after != before {
		t.Errorf("%d series after many unknown words, %d before", after, before)
	}
	for g, err := range s.Admin.Gateways(t.Context(), client.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Admin.DeleteGateway(t.Context(), g.GatewayID); err != nil {
			t.Fatal(err)
		}
		if text := scrape(t, s); strings.Contains(text, g.GatewayID) {
			t.Errorf("the deleted gateway %s is still told of:\n%s", g.GatewayID, text)
		}
	}
}
