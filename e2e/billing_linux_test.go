package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// billing is a billing system that answers as Stripe, OpenMeter or Lago do, and a server that exports usage records to it.
type billing struct {
	t      *testing.T
	system string
	dir    string
	env    []string

	mu      sync.Mutex
	records []map[string]any
	units   map[string]int64 // counted, by customer
	known   map[string]bool  // identifiers
	posts   int
	answer  func(post int) (status int) // instead of the system's own answer; 0 for that, -1 to count and then break off
}

// billedHour is the hour of the first records.
var billedHour = time.Now().UTC().Truncate(time.Hour).Add(-2 * time.Hour)

func newBilling(t *testing.T, system string) *billing {
	t.Helper()
	b := &billing{t: t, system: system, dir: t.TempDir(), units: map[string]int64{}, known: map[string]bool{}, answer: func(int) int { return 0 }}
	page, err := os.ReadFile("../docs/billing.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	if script == nil {
		t.Fatal("docs/billing.md has no script")
	}
	if err := os.WriteFile(filepath.Join(b.dir, "bill.py"), script[1], 0o600); err != nil {
		t.Fatal(err)
	}
	server, receiver := httptest.NewServer(http.HandlerFunc(b.export)), httptest.NewServer(http.HandlerFunc(b.receive))
	t.Cleanup(server.Close)
	t.Cleanup(receiver.Close)
	if err := os.Mkdir(filepath.Join(b.dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary, filepath.Join(b.dir, "bin", "keygate")); err != nil {
		t.Fatal(err)
	}
	b.env = []string{
		"PATH=" + filepath.Join(b.dir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + b.dir, "BILLING_URL=" + receiver.URL, "BILLING_KEY=secret",
		"KEYGATE_URL=" + server.URL, "KEYGATE_API_KEY=kga_" + strings.Repeat("A", 38),
	}
	return b
}

// use adds a final record. owner may be nil.
func (b *billing) use(owner any, units int64, hour time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := fmt.Sprintf("%064d", len(b.records))
	b.records = append(b.records, map[string]any{
		"specversion": "1.0", "id": id, "type": "keygate.usage.v1", "source": "/accounts/acct_1", "subject": owner, "time": hour.Format(time.RFC3339),
		"datacontenttype": "application/json",
		"data":            map[string]any{"usage_id": id, "owner": owner, "meter": "requests", "units": units, "period_start": hour.Format(time.RFC3339)},
	})
}

// export is GET /v1/usage-records with format=cloudevents.
func (b *billing) export(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := 0
	if cursor := r.URL.Query().Get("cursor"); cursor != "" {
		if _, err := fmt.Sscanf(cursor, "at-%d", &from); err != nil {
			b.t.Errorf("got the cursor %q", cursor)
		}
	}
	if got := r.URL.Query().Get("format"); got != "cloudevents" {
		b.t.Errorf("got the format %q", got)
	}
	w.Header().Set("X-Keygate-Cursor", fmt.Sprintf("at-%d", len(b.records)))
	for _, record := range b.records[from:] {
		line, err := json.Marshal(record)
		if err != nil {
			b.t.Error(err)
		}
		_, _ = fmt.Fprintf(w, "%s\n", line)
	}
}

// usageOf is what a post says.
type usageOf struct {
	id, customer string
	units        int64
	at           time.Time
}

// read parses a post as the system does, and checks its form.
func (b *billing) read(r *http.Request, body []byte) (u usageOf) {
	kind := r.Header.Get("Content-Type")
	if r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer secret" {
		b.t.Errorf("got %s with Authorization %q", r.Method, r.Header.Get("Authorization"))
	}
	wantPath, wantKind := "/api/v1/events", "application/json"
	switch b.system {
	case "stripe":
		wantPath, wantKind = "/v1/billing/meter_events", "application/x-www-form-urlencoded"
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if err := r.ParseForm(); err != nil || len(r.PostForm) != 5 || r.PostForm.Get("event_name") != "keygate_requests" {
			b.t.Errorf("got the form %v, error %v", r.PostForm, err)
		}
		var seconds int64
		_, err := fmt.Sscan(r.PostForm.Get("payload[value]")+" "+r.PostForm.Get("timestamp"), &u.units, &seconds)
		if err != nil {
			b.t.Error(err)
		}
		u.id, u.customer, u.at = r.PostForm.Get("identifier"), r.PostForm.Get("payload[stripe_customer_id]"), time.Unix(seconds, 0)
	case "openmeter":
		wantKind = "application/cloudevents+json"
		var e struct {
			SpecVersion, ID, Source, Type, Subject string
			Time                                   time.Time
			Data                                   struct{ Units int64 }
		}
		if err := json.Unmarshal(body, &e); err != nil || e.SpecVersion != "1.0" || e.Type != "keygate.usage.v1" || e.Source == "" {
			b.t.Errorf("got %s, error %v", body, err)
		}
		u = usageOf{e.ID + e.Source, e.Subject, e.Data.Units, e.Time}
	case "lago":
		var e struct {
			Event struct {
				TransactionID  string `json:"transaction_id"`
				SubscriptionID string `json:"external_subscription_id"`
				Code           string
				Timestamp      int64
				Properties     struct{ Units int64 }
			}
		}
		if err := json.Unmarshal(body, &e); err != nil || e.Event.Code != "keygate_requests" {
			b.t.Errorf("got %s, error %v", body, err)
		}
		u = usageOf{e.Event.TransactionID, e.Event.SubscriptionID, e.Event.Properties.Units, time.Unix(e.Event.Timestamp, 0)}
	}
	if r.URL.Path != wantPath || kind != wantKind {
		b.t.Errorf("got %s of %s, want %s of %s", r.URL.Path, kind, wantPath, wantKind)
	}
	return u
}

// receive is the endpoint of the billing system.
func (b *billing) receive(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		b.t.Error(err)
	}
	u := b.read(r, body)
	b.posts++
	instead := b.answer(b.posts)
	if instead > 0 {
		w.WriteHeader(instead)
		return
	}
	status, text := http.StatusOK, "{}"
	switch {
	case b.system == "stripe" && time.Since(u.at) > 35*24*time.Hour:
		status, text = http.StatusBadRequest, `{"error":{"message":"The timestamp is more than 35 calendar days in the past.","type":"invalid_request_error"}}`
	case b.system == "stripe" && b.known[u.id]:
		status, text = http.StatusBadRequest, fmt.Sprintf(`{"error":{"message":"An event already exists with identifier %s.","type":"invalid_request_error"}}`, u.id)
	case b.system == "lago" && b.known[u.id]:
		status, text = http.StatusUnprocessableEntity, `{"status":422,"error":"Unprocessable Entity","code":"validation_errors","error_details":{"transaction_id":["value_already_exist"]}}`
	case b.system == "openmeter" && b.known[u.id]:
		status = http.StatusNoContent // it takes the event, and counts it once
	case u.customer == "refused" && b.system == "lago":
		status, text = http.StatusUnprocessableEntity, `{"status":422,"error":"Unprocessable Entity","code":"validation_errors","error_details":{"timestamp":["invalid_format"]}}`
	case u.customer == "refused":
		status, text = http.StatusBadRequest, "{}"
	default:
		b.known[u.id] = true
		b.units[u.customer] += u.units
		if b.system == "openmeter" {
			status = http.StatusNoContent
		}
	}
	if instead < 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
	if status != http.StatusNoContent {
		_, _ = io.WriteString(w, text)
	}
}

// answers sets what the billing system answers to each post, by its number: an answer that is not its own for a number above
// 0, and none for one below.
func (b *billing) answers(f func(post int) int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = f
}

// run runs the script once, and returns what it reports.
func (b *billing) run(wantSuccess bool) string {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "python3", "bill.py", b.system)
	cmd.Dir, cmd.Env = b.dir, b.env
	out, err := cmd.CombinedOutput()
	if (err == nil) != wantSuccess {
		b.t.Fatalf("success: got %v, want %v\n%s", err, wantSuccess, out)
	}
	return string(out)
}

// want checks what was counted, and the number of posts since the last call.
func (b *billing) want(posts int, units map[string]int64) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if fmt.Sprint(b.units) != fmt.Sprint(units) || b.posts != posts {
		b.t.Errorf("got %v in %d posts, want %v in %d", b.units, b.posts, units, posts)
	}
	b.posts = 0
}

// passedOver returns the number of records that the script has passed over.
func (b *billing) passedOver() int {
	content, err := os.ReadFile(filepath.Join(b.dir, "passed-over.jsonl"))
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	return strings.Count(string(content), "\n")
}

// Guarantee: the script of docs/billing.md counts every usage record once at Stripe, OpenMeter and Lago: over failures of
// the other side, lost responses and kills between any two steps. What the other side never takes is reported once, and holds
// up nothing.
func TestBillingGuide(t *testing.T) {
	t.Parallel()
	for _, system := range []string{"stripe", "openmeter", "lago"} {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			b := newBilling(t, system)
			b.run(true)
			b.want(0, map[string]int64{})

			// Each record once.
			b.use("cus_a", 5, billedHour)
			b.use("cus_b", 7, billedHour)
			b.use("cus_a", 11, billedHour.Add(time.Hour))
			b.run(true)
			b.want(3, map[string]int64{"cus_a": 16, "cus_b": 7})
			b.run(true)
			b.want(0, map[string]int64{"cus_a": 16, "cus_b": 7})

			// The other side is away, and then a response is lost: the next runs go on where it was, and send only the
			// record that was under way again.
			for _, units := range []int64{100, 200, 400} {
				b.use("cus_b", units, billedHour.Add(time.Hour))
			}
			for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusUnauthorized} {
				b.answers(func(int) int { return status })
				b.run(false)
				b.want(1, map[string]int64{"cus_a": 16, "cus_b": 7})
			}
			b.answers(func(post int) int { return map[int]int{2: -1}[post] })
			b.run(false)
			b.want(2, map[string]int64{"cus_a": 16, "cus_b": 307})
			b.answers(func(int) int { return 0 })
			b.use("cus_a", 1000, billedHour.Add(time.Hour)) // final after the export of the batch
			b.run(true)
			b.want(3, map[string]int64{"cus_a": 1016, "cus_b": 707})
			if n := b.passedOver(); n != 0 {
				t.Errorf("%d records were passed over, want none", n)
			}

			// What is never taken.
			b.use("refused", 1, billedHour)
			b.use(nil, 1, billedHour)
			b.use("cus_a", 1, billedHour.Add(-36*24*time.Hour))
			b.use("cus_a", 2000, billedHour.Add(time.Hour))
			report := b.run(true)
			want, passed := map[string]int64{"cus_a": 3017, "cus_b": 707}, 2
			if system == "stripe" {
				want, passed = map[string]int64{"cus_a": 3016, "cus_b": 707}, 3
			}
			b.want(3, want)
			if n := b.passedOver(); n != passed || strings.Count(report, "passed over:") != passed {
				t.Errorf("%d records were passed over, want %d\n%s", n, passed, report)
			}
			b.run(true)
			b.want(0, want)

			// A kill before the batch is removed, when its position is removed: all is sent again, and counts once.
			b.use("cus_b", 4000, billedHour.Add(time.Hour))
			batch := filepath.Join(b.dir, "batch.jsonl")
			b.answers(func(int) int { return http.StatusServiceUnavailable })
			b.run(false)
			content, err := os.ReadFile(batch)
			if err != nil {
				t.Fatal(err)
			}
			b.answers(func(int) int { return 0 })
			b.run(true)
			want["cus_b"] += 4000
			b.want(2, want)
			if err := os.WriteFile(batch, content, 0o600); err != nil {
				t.Fatal(err)
			}
			b.run(true)
			b.want(1, want)
		})
	}
}
