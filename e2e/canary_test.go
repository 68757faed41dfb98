package e2e

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"crypto/tls"
	"database/sql"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
	_ "modernc.org/sqlite" // to read the store directly

	"github.com/keygate/keygate/e2e/tally"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// traceCollector records spans like an OpenTelemetry collector.
type traceCollector struct {
	*httptest.Server
	mu    sync.Mutex
	spans bytes.Buffer
}

func newTraceCollector(t *testing.T) *traceCollector {
	c := &traceCollector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			return // the server aborted the export, and retries it or logs the loss
		}
		var body io.Reader = bytes.NewReader(content)
		if r.Header.Get("Content-Encoding") == "gzip" {
			if body, err = gzip.NewReader(body); err != nil {
				t.Error(err)
				return
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		_, _ = io.Copy(&c.spans, body)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *traceCollector) content() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.spans.Bytes())
}

// Guarantee: no API key in a request, valid or not, on either plane and in any part of
// the request, and no private key of a client certificate appears in a response, the
// log, the metrics, the traces, the audit log with its blocks and exports, the request
// log, the access log, or the files of the store, including their compressed parts.
func TestNoKeyInAnySink(t *testing.T) {
	traces := newTraceCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	up := newRecordingUpstream(t)
	accessLog := filepath.Join(t.TempDir(), "access.log")
	s := startServer(t, "--log-level", "debug", "--access-log", accessLog)
	gatewayID := s.newGateway(up.URL, nil)
	secrets := createCanaries(t, s)
	sendEverywhere(t, s, gatewayID, secrets)
	// Enough calls that the audit log seals a block, which is compressed.
	var calls []tally.Call
	for name, key := range secrets {
		calls = append(calls, tally.Call{
			Name: name, Method: "GET", Host: "localhost", Target: "/x?api_key=" + key, Want: []int{http.StatusOK, http.StatusUnauthorized, http.StatusForbidden},
		})
	}
	stop := startCalls(t, s, calls)
	if !awaittest.Holds(func() bool {
		h, err := s.adminAPI().AuditHead(t.Context())
		return err == nil && h.Number > 0
	}) {
		t.Error("no block was sealed: the test proves too little")
	}
	stop()
	sinks := collectSinks(t, s, traces, secrets)
	addFiles(t, filepath.Dir(accessLog), sinks)
	if !bytes.Contains(sinks["file access.log"], []byte(`"path":"/x"`)) {
		t.Error("the access log has no calls: the test proves too little")
	}
	for where, content := range sinks {
		for name, secret := range secrets {
			// The second half suffices: the prefix may be shown.
			if part := secret[len(secret)/2:]; bytes.Contains(content, []byte(part)) {
				at := bytes.Index(content, []byte(part))
				t.Errorf("%s contains the %s key: …%q…", where, name, content[max(0, at-80):min(len(content), at+60)])
			}
		}
	}
}

// createCanaries creates keys of every kind, and strings that resemble keys, by name.
func createCanaries(t *testing.T, s *server) map[string]string {
	t.Helper()
	secrets := map[string]string{}
	ids := map[string]string{}
	create := func(name string, more map[string]any) string {
		body := map[string]any{"name": name, "scope": "read"}
		for k, v := range more {
			body[k] = v
		}
		a := s.call(http.StatusCreated, "POST", "/v1/keys", body, "Idempotency-Key: make "+name)
		ids[name], secrets[name] = a.field(t, "key_id"), a.field(t, "key")
		return secrets[name]
	}
	forge := func(name, like string) {
		// Looks like a key, but the checksum is wrong.
		last := "a"
		if strings.HasSuffix(like, last) {
			last = "b"
		}
		secrets[name] = like[:12] + strings.Repeat("Z", len(like)-13) + last
	}
	create("revoked", nil)
	create("restricted", map[string]any{"scope": "read:nothing"})
	create("account level", map[string]any{"level": "account"})
	create("rotated", nil)
	secrets["successor"] = s.call(http.StatusCreated, "POST", "/v1/keys/"+ids["rotated"]+"/rotate", `{"overlap_days": 1}`).field(t, "key")
	s.call(http.StatusOK, "DELETE", "/v1/keys/"+ids["revoked"], nil)
	forge("forged", create("good", nil))
	secrets["odd"] = "canary-of-no-form-at-all-0123456789"
	return secrets
}

// sendEverywhere sends each string in every part of a request that may have a key, to
// both planes.
func sendEverywhere(t *testing.T, s *server, gatewayID string, secrets map[string]string) {
	t.Helper()
	good := secrets["good"]
	for name, key := range secrets {
		if name == "forged" || name == "odd" {
			continue // a path may contain any string that is not a key
		}
		for _, target := range []string{"/x/" + key, "/%6b" + key[1:] + "/x"} {
			if _, err := s.send("GET", target, good); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.try(good, "GET", "/v1/keys/"+key, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range secrets {
		for _, method := range []string{"GET", "DELETE"} {
			for _, c := range []struct {
				target  string
				key     string
				headers []string
			}{
				{"/x", key, nil},
				{"/x?api_key=" + key, "", nil},
				{"/x?a=b&api_key=" + key + "&c=d", "", nil},
				{"/x?api_key=" + key, good, nil},
				{"/x?%61pi_key=" + key, "", nil},
				{"/nowhere/at?api_key=" + key, "", []string{"Host: unknown.example"}},
				{"/x?api_key=" + key, "", []string{"Authorization: Basic " + key}},
				{"/%zz?api_key=" + key, "", nil},
			} {
				if _, err := s.send(method, c.target, c.key, c.headers...); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, path := range []string{"/v1/keys", "/v1/nowhere?api_key=" + key, "/v1/keys?owner=" + key} {
			if _, err := s.try(key, "GET", path, nil); err != nil {
				t.Fatal(err)
			}
		}
		s.call(http.StatusOK, "POST", "/v1/keys/verify", map[string]any{"key": key, "gateway_id": gatewayID}, "Idempotency-Key: verify "+key[len(key)-8:])
	}
}

// collectSinks stops the server and returns the content of everything that it wrote or
// returned, by name. It adds the private keys of client certificates to secrets.
func collectSinks(t *testing.T, s *server, traces *traceCollector, secrets map[string]string) map[string][]byte {
	t.Helper()
	// Lists, reports, exports and metrics.
	sinks := map[string][]byte{}
	for _, path := range []string{"/v1/audit-log?limit=100", "/v1/requests?limit=100", "/v1/events?limit=100", "/v1/keys?limit=100", "/v1/reports/traffic?group_by=key&interval=1m"} {
		sinks[path] = s.call(http.StatusOK, "GET", path, nil).body
	}
	sinks["/metrics"] = s.metrics()
	for name, line := range usePrivateKeys(t, s) {
		secrets[name] = line
	}
	sinks["/v1/gateways"] = s.call(http.StatusOK, "GET", "/v1/gateways", nil).body
	if !bytes.Contains(sinks["/v1/gateways"], []byte(`"upstream_client_key":"***"`)) {
		t.Error("no gateway has a private key: the test proves too little")
	}
	for _, args := range [][]string{
		{"audit-log", "--limit", "1000"}, {"audit-log", "export"}, {"audit-log", "export", "--format", "csv", "--limit", "1000"}, {"explain", "--limit", "1000"}, {"traffic", "--group-by", "key"},
	} {
		out, status := s.keygate(args...)
		if status != 0 {
			t.Errorf("%v: got exit status %d, want 0\n%s", args, status, out)
		}
		sinks[strings.Join(args, " ")] = []byte(out)
	}
	if !bytes.Contains(sinks["audit-log export"], []byte(secrets["good"][:9])) {
		t.Error("the audit log does not have the prefix of a key: the test proves too little")
	}
	if !awaittest.Holds(func() bool { return len(traces.content()) > 1000 }) {
		t.Error("no traces were exported: the test proves too little")
	}
	if status := s.end(syscall.SIGTERM); status != 0 {
		t.Errorf("got exit status %d, want 0", status)
	}
	sinks["log"] = []byte(s.output.String())
	sinks["traces"] = traces.content()
	if out, status := s.keygate("audit-log", "export", "--blocks", "--data-dir", s.dataDir); status == 0 {
		sinks["blocks"] = []byte(out)
	} else {
		t.Errorf("export the blocks: got exit status %d, want 0\n%s", status, out)
	}
	addFiles(t, s.dataDir, sinks)
	cells := addStoreValues(t, filepath.Join(s.dataDir, "keygate.db"), sinks)
	if cells < 100 {
		t.Errorf("only %d values in the store: the test proves too little", cells)
	}
	return sinks
}

// usePrivateKeys sends private keys of client certificates to the server in valid and invalid
// requests, and makes the gateway use the valid keys. It returns a line of each private key.
func usePrivateKeys(t *testing.T, s *server) map[string]string {
	t.Helper()
	lines := map[string]string{}
	fresh := func(name string) (cert, key string) {
		p := certificatetest.New(t, name)
		lines[name] = strings.Split(string(p.Key), "\n")[1]
		return string(p.Cert), string(p.Key)
	}
	cert, key := fresh("first private")
	service := func(auth tls.ClientAuthType) *httptest.Server {
		up := httptest.NewUnstartedServer(http.NotFoundHandler())
		up.TLS = &tls.Config{ClientAuth: auth}
		up.Config.ErrorLog = log.New(io.Discard, "", 0)
		up.StartTLS()
		t.Cleanup(up.Close)
		return up
	}
	up, strict := service(tls.RequireAnyClientCert), service(tls.RequireAndVerifyClientCert)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw}))
	body := map[string]any{
		"name": "tls", "upstream_url": up.URL, "hostname": "tls.example.org", "upstream_ca": ca, "upstream_client_certificate": cert, "upstream_client_key": key,
	}
	created := s.call(http.StatusCreated, "POST", "/v1/gateways", body, "Idempotency-Key: make tls").field(t, "gateway_id")
	s.call(http.StatusCreated, "POST", "/v1/gateways", body, "Idempotency-Key: make tls") // a replay
	s.call(http.StatusCreated, "POST", "/v1/gateways/"+created+"/routes", `{"path": "/*", "methods": ["GET"], "auth": "none"}`)
	path := "/v1/gateways/" + created
	use := func(want int) {
		t.Helper()
		s.mustSend(want, "GET", "/", "", "Host: tls.example.org")
	}
	use(http.StatusNotFound) // from the upstream
	cert, key = fresh("second private")
	_, other := fresh("third private")
	for _, refused := range []any{
		map[string]any{"upstream_client_key": other},
		map[string]any{"upstream_client_certificate": other},
		map[string]any{"upstream_client_key": []string{other}},
		map[string]any{"upstream_ca": cert + other},
		map[string]any{"name": "n", "upstream_client_keys": other},
		`{"upstream_client_key": "` + other,
		other,
	} {
		if a, err := s.try(s.key, "PATCH", path, refused); err != nil || a.status < 400 || bytes.Contains(a.body, []byte(lines["third private"])) {
			t.Errorf("PATCH %.40v: got status %d %s, error %v, want an error status and no private key", refused, a.status, a.body, err)
		}
	}
	s.call(http.StatusOK, "PATCH", path, map[string]any{"upstream_client_certificate": cert, "upstream_client_key": key})
	use(http.StatusNotFound)
	s.call(http.StatusOK, "PATCH", path, map[string]any{"upstream_url": strict.URL, "upstream_client_certificate": cert, "upstream_client_key": key})
	use(http.StatusBadGateway)
	return lines
}

// addFiles adds the content of the files in the data directory to to, except
// admin.key.
func addFiles(t *testing.T, dir string, to map[string][]byte) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "admin.key" {
			return err
		}
		content, err := os.ReadFile(path)
		to["file "+d.Name()] = content
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// addStoreValues adds every value of every table to to, and the decompressed content of
// each, and returns the number of values.
func addStoreValues(t *testing.T, path string, to map[string][]byte) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	unpacked := 0
	for _, table := range rowsOf(t, db, `SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name`) {
		name := string(cellBytes(table["name"]))
		for _, row := range rowsOf(t, db, fmt.Sprintf(`SELECT * FROM %q`, name)) {
			for column, value := range row {
				n++
				cell := cellBytes(value)
				where := "table " + name + "." + column
				to[where] = append(to[where], cell...)
				for _, plain := range decompress(cell) {
					unpacked++
					to[where+" unpacked"] = append(to[where+" unpacked"], plain...)
				}
			}
		}
	}
	if unpacked == 0 {
		t.Error("no compressed value was found in the store: the test proves too little")
	}
	return n
}

// rowsOf returns the rows of a query, each by column.
func rowsOf(t *testing.T, db *sql.DB, query string) (all []map[string]any) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		row := map[string]any{}
		for i, v := range values {
			row[columns[i]] = *v.(*any)
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func cellBytes(v any) []byte {
	switch v := v.(type) {
	case []byte:
		return v
	case string:
		return []byte(v)
	default:
		return fmt.Append(nil, v)
	}
}

// decompress returns the content of all Zstandard frames in b, wherever they start, and
// of DEFLATE streams that start within the first 8 bytes.
func decompress(b []byte) (plain [][]byte) {
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	for at := bytes.Index(b, magic); at >= 0; {
		if d, err := zstd.NewReader(bytes.NewReader(b[at:])); err == nil {
			if content, _ := io.ReadAll(d); len(content) > 0 { // an error after the frame does not matter
				plain = append(plain, content)
			}
			d.Close()
		}
		next := bytes.Index(b[at+1:], magic)
		if next < 0 {
			break
		}
		at += 1 + next
	}
	for from := range min(8, len(b)) {
		if content, err := io.ReadAll(flate.NewReader(bytes.NewReader(b[from:]))); err == nil && len(content) > 16 {
			plain = append(plain, content)
		}
	}
	return plain
}
