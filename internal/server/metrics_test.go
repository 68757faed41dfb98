package server_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/keygatetest"
)

// scrape returns the text of /metrics.
func scrape(t *testing.T, s *keygatetest.Server) string {
	t.Helper()
	status, body := fetch(t, s.OpsURL()+"/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics: got status %d, want 200", status)
	}
	return body
}

// startWithAllMetrics starts a server and sends it requests, so that it has every metric:
// with TLS, certificates by ACME, traces, a forwarded request whose cost is unknown, a failing upstream with a target
// that is down, an exceeded limit and a missing route.
func startWithAllMetrics(t *testing.T) *keygatetest.Server {
	t.Helper()
	traces := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	t.Cleanup(traces.Close)
	pair := certificatetest.New(t, "localhost")
	cert, key := pair.Write(t, t.TempDir())
	s := keygatetest.StartWith(t, keygatetest.Options{
		Args: []string{"--tls-cert", cert, "--tls-key", key, "--access-log", filepath.Join(t.TempDir(), "access.log"),
			"--acme-email", "ops@example.com", "--acme-directory", "https://127.0.0.1:1/dir"},
		Env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": traces.URL},
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
	if _, err := s.Admin.PushConfig(t.Context(), g.GatewayID, []byte(`routes:
- {path: /passes, methods: [GET], auth: none, cost: [{meter: tokens, max: 9, from: {json: {usage.total: 1}}}]}
- {path: /fails, methods: [GET], auth: none}
- {path: /limited, methods: [GET], auth: none, rate_limit: {daily: 1/day}}
`), false); err != nil {
		t.Fatal(err)
	}
	giveTargets(t, s, g.GatewayID, up.URL)
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
				t.Fatalf("%s: got status %s, want %d", path, res.Status, want)
			}
		}
	}
	return s
}

// families returns the names of the metrics in the text of /metrics, with their types.
func families(text string) map[string]string {
	out := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		out[m[1]] = m[2]
	}
	return out
}

// Guarantee: docs/metrics.md lists exactly the metrics of a server, with their types and
// labels. The dashboard and the alerts use only metrics that exist, and every lost record
// raises an alert.
func TestMetricsAreAsDocumented(t *testing.T) {
	text := scrape(t, startWithAllMetrics(t))
	exported := families(text)
	t.Run("docs/metrics.md lists exactly the metrics of a server", func(t *testing.T) {
		checkDocumentedMetrics(t, text, exported)
	})
	t.Run("the dashboard and the alerts use only metrics that exist", func(t *testing.T) {
		checkUsedMetrics(t, exported)
	})
	t.Run("docs/monitoring.md and docs/sizing.md name only metrics that exist", func(t *testing.T) {
		checkNamedMetrics(t, exported)
	})
	t.Run("every lost record raises an alert", func(t *testing.T) {
		for name := range exported {
			if strings.HasSuffix(name, "_lost_total") && name != "keygate_log_lost_total" && name != "keygate_traces_lost_total" &&
				!slices.ContainsFunc(alerts(t), func(a alert) bool { return strings.Contains(a.Expr, name) }) {
				t.Errorf("no alert uses %s, want one", name)
			}
		}
	})
}

// checkDocumentedMetrics compares the exported metrics, by name with their types, and their
// labels in text with docs/metrics.md.
func checkDocumentedMetrics(t *testing.T, text string, exported map[string]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+_[a-z_]+)` \\| ([a-z]+) \\| (.*?)\\| ").FindAllStringSubmatch(string(page), -1) {
		name, kind, labels := row[1], row[2], row[3]
		documented[name] = true
		if exported[name] != kind {
			t.Errorf("docs/metrics.md: %s is documented as a %s; the server exports a %q", name, kind, exported[name])
		}
		if got, want := labelsOf(text, name), labelsIn(labels); !slices.Equal(got, want) {
			t.Errorf("docs/metrics.md: %s is documented with labels %v; the server exports %v", name, want, got)
		}
	}
	for name := range exported {
		if !documented[name] && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("docs/metrics.md does not list %s", name)
		}
	}
}

// checkUsedMetrics checks that the exported metrics include every one that the dashboard
// and the alerts use.
func checkUsedMetrics(t *testing.T, exported map[string]string) {
	t.Helper()
	for file, expressions := range map[string][]string{"dashboard.json": dashboard(t), "alerts.yaml": expressions(alerts(t))} {
		used := 0
		for _, e := range expressions {
			for _, name := range regexp.MustCompile(`\b(keygate|go|process|promhttp)_[a-z_]+`).FindAllString(e, -1) {
				used++
				base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
				if exported[name] == "" && exported[base] != "histogram" {
					t.Errorf("deploy/grafana/%s uses %s, which the server does not export: %s", file, name, e)
				}
			}
		}
		if used < len(expressions) || used == 0 {
			t.Errorf("deploy/grafana/%s: got %d metrics in %d expressions, want one or more in each", file, used, len(expressions))
		}
	}
}

// labelsOf returns the labels of a metric's series in the text of /metrics.
func labelsOf(text, name string) []string {
	labels := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^`+name+`(?:_count)?\{(.*)\} `).FindAllStringSubmatch(text, -1) {
		for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(line[1], -1) {
			labels[l[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(labels))
}

// labelsIn returns the labels in a table cell of docs/metrics.md: the names outside of
// parentheses.
func labelsIn(cell string) []string {
	labels := map[string]bool{}
	for _, l := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(cell, ""), -1) {
		labels[l[1]] = true
	}
	return slices.Sorted(maps.Keys(labels))
}

// dashboard returns the queries of the Grafana dashboard.
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

// alert is a rule of deploy/grafana/alerts.yaml.
type alert struct {
	Alert, Expr string
	Labels      struct{ Severity string }
}

// alerts returns the alerting rules.
func alerts(t *testing.T) (rules []alert) {
	t.Helper()
	content, err := os.ReadFile("../../deploy/grafana/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []alert } }
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

// expressions returns the expressions of rules.
func expressions(rules []alert) (all []string) {
	for _, r := range rules {
		all = append(all, r.Expr)
	}
	return all
}

// checkNamedMetrics checks that the exported metrics include every one that the pages for operators name.
func checkNamedMetrics(t *testing.T, exported map[string]string) {
	t.Helper()
	for _, page := range []string{"../../docs/monitoring.md", "../../docs/sizing.md"} {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`\b(keygate|go|process|promhttp)_[a-z_]+[a-z]\b`).FindAllString(string(content), -1)
		for _, name := range names {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if exported[name] == "" && exported[base] != "histogram" {
				t.Errorf("%s names %s, which the server does not export", page, name)
			}
		}
		if len(names) == 0 {
			t.Errorf("%s names no metric, want one or more", page)
		}
	}
}

// Guarantee: the table of docs/monitoring.md has a row for each alert of deploy/grafana/alerts.yaml, in the same
// order, with its severity, its meaning and what to do.
func TestEveryAlertIsExplained(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(Keygate\\w+)` \\| (\\w+) \\| [^|]{20,} \\| [^|]{20,} \\|$").FindAllStringSubmatch(string(page), -1) {
		got = append(got, row[1]+" "+row[2])
	}
	for _, a := range alerts(t) {
		want = append(want, a.Alert+" "+a.Labels.Severity)
	}
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the table of docs/monitoring.md has the alerts\n%q, want those of alerts.yaml with their severities:\n%q", got, want)
	}
}

// Guarantee: unknown hosts, paths, keys and methods create no series, and the series of a
// deleted gateway are gone at once.
func TestCallersCannotCreateSeries(t *testing.T) {
	s := keygatetest.Start(t)
	up := keygatetest.NewUpstream(t)
	publicGateway(t, s.Admin, up.URL)
	s.Through("", http.MethodGet, "/first", "", "")
	series := func() int {
		return strings.Count(regexp.MustCompile(`(?m)^(#|go_|process_|promhttp_).*\n`).ReplaceAllString(scrape(t, s), ""), "\n")
	}
	// Requests without a gateway share one series, and so do those without a route.
	sendUnknown := func(suffix string) {
		s.Through("nobody"+suffix+".example", http.MethodGet, "/../x"+suffix, "", "")
		s.Through("", "BREW"+suffix, "/"+suffix, "kg_"+suffix, "")
		s.Through("", http.MethodPost, "/"+suffix, "kg_"+suffix, "", "X-"+suffix, "x", "User-Agent", suffix)
	}
	sendUnknown("A")
	before := series()
	for i := range 30 {
		sendUnknown(strings.Repeat("B", i+1))
		s.Through("", http.MethodGet, "/"+strings.Repeat("c", i+1), "", "")
	}
	if after := series(); after != before {
		t.Errorf("got %d series after many unknown names, want %d as before", after, before)
	}
	for g, err := range s.Admin.Gateways(t.Context(), client.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Admin.DeleteGateway(t.Context(), g.GatewayID); err != nil {
			t.Fatal(err)
		}
		if text := scrape(t, s); strings.Contains(text, g.GatewayID) {
			t.Errorf("/metrics still has the deleted gateway %s:\n%s", g.GatewayID, text)
		}
	}
}

// Guarantee: /metrics has at most --metrics-max-series lines, and the routes beyond it are
// counted together (contract, section 7). The lines that are not counts of routes are fewer than
// the lines reserved for them.
func TestMetricsAreBounded(t *testing.T) {
	s := keygatetest.Start(t, "--metrics-max-series", "1000")
	up := keygatetest.NewUpstream(t)
	g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "g", UpstreamURL: up.URL})
	if err != nil {
		t.Fatal(err)
	}
	auth := client.CreateRouteRequestAuthNone
	const routes = 30
	for i := range routes {
		path := "/" + strings.Repeat("r", i+1)
		if _, err := s.Admin.CreateRoute(t.Context(), g.GatewayID, client.CreateRouteRequest{Path: path, Methods: []string{"GET"}, Auth: &auth}); err != nil {
			t.Fatal(err)
		}
		s.Through("", http.MethodGet, path, "", "")
	}
	text := scrape(t, s)
	if n := strings.Count(text, "\n"); n > 1000 {
		t.Errorf("got %d lines, want at most 1000", n)
	}
	ofRoutes := regexp.MustCompile(`(?m)^\w+\{gateway="gw_[^}]*\} .*\n`)
	if n := strings.Count(ofRoutes.ReplaceAllString(text, ""), "\n"); n > 470 {
		t.Errorf("got %d lines that belong to no gateway, want at most 470 of the 600 reserved", n)
	}
	requests := regexp.MustCompile(`(?m)^keygate_requests_total\{gateway="gw_[^}]*,route="(\w+)",status="2xx"\} (\d+)$`).FindAllStringSubmatch(text, -1)
	sum, other := 0, 0
	for _, m := range requests {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
		if m[1] == "other" {
			other = n
		}
	}
	if sum != routes || other == 0 || other == routes {
		t.Errorf("got %d requests, %d of them of other routes, want %d, and some of other routes", sum, other, routes)
	}
}
