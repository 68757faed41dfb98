package gateway

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// Health says how the targets of an upstream are checked (targets.md, sections 1 and 3): by one of Path, GRPC and TCP. The zero
// value means that they are not.
type Health struct {
	// Path, with a query if need be, is requested with GET. It begins at the root of the target's origin.
	Path string `json:"path,omitempty"`
	// GRPC is the service that is asked for (grpc.health.v1); "" is the server as a whole.
	GRPC *string `json:"grpc,omitempty"`
	// TCP is set if a connection is enough.
	TCP bool `json:"tcp,omitempty"`

	Interval  string `json:"interval,omitempty"`  // a Go duration
	Timeout   string `json:"timeout,omitempty"`   // a Go duration
	Unhealthy int    `json:"unhealthy,omitempty"` // bad results in a row that take a target out
	Healthy   int    `json:"healthy,omitempty"`   // good ones in a row that take it in again
	Statuses  string `json:"statuses,omitempty"`  // of Path: those that are good, as in "200-399"; "" for others

	// Sealed is the headers of checks as they are stored, sealed as Upstream.Headers are.
	Sealed map[string][]byte `json:"headers,omitempty"`
	// Headers is the headers in a patch, in clear; nil keeps those in force. In a Health that is shown, and in a file, their values
	// are Masked.
	Headers map[string]string `json:"-"`
}

// Bounds and defaults of checks.
const (
	DefaultStatuses = "200-399"

	maxHealthPath      = 1024
	maxHealthService   = 255
	maxHealthStatuses  = 16 // codes and ranges
	maxHealthThreshold = 100
	minHealthInterval  = time.Second
	maxHealthInterval  = time.Hour
	minHealthTimeout   = 100 * time.Millisecond
	maxHealthTimeout   = time.Minute
)

// DefaultHealth returns the defaults of checks, without Path, GRPC and TCP.
func DefaultHealth() Health {
	return Health{Interval: "10s", Timeout: "2s", Unhealthy: 2, Healthy: 2}
}

// IsZero reports whether there are no checks.
func (h *Health) IsZero() bool { return h.Interval == "" }

// WithDefaults returns h with the statuses that are in force.
func (h Health) WithDefaults() Health {
	if h.Path != "" && h.Statuses == "" {
		h.Statuses = DefaultStatuses
	}
	return h
}

// TakesHeaders reports whether checks send headers.
func (h *Health) TakesHeaders() bool { return !h.TCP }

// WithoutHeaders returns h without headers; nil if h is nil.
func (h *Health) WithoutHeaders() *Health {
	if h == nil {
		return nil
	}
	other := *h
	other.Sealed, other.Headers = nil, nil
	return &other
}

// SealedHeaders returns the headers of checks as they are stored; nil if h is nil.
func (h *Health) SealedHeaders() map[string][]byte {
	if h == nil {
		return nil
	}
	return h.Sealed
}

// HealthOf returns the checks of the upstream with Masked for the values of headers.
func (u *Upstream) HealthOf() Health {
	if u.Health == nil {
		return Health{}
	}
	h := *u.Health
	h.Headers, h.Sealed = masked(h.Sealed), nil
	return h
}

// setHealth sets the checks with the headers that they have.
func (u *Upstream) setHealth(h Health) {
	if h.IsZero() {
		u.Health = nil
		return
	}
	h.Sealed, h.Headers = u.Health.SealedHeaders(), nil
	if !h.TakesHeaders() {
		h.Sealed = nil
	}
	u.Health = &h
}

// masked returns the names of headers with Masked for their values; nil without any.
func masked(headers map[string][]byte) map[string]string {
	if len(headers) == 0 {
		return nil
	}
	shown := make(map[string]string, len(headers))
	for name := range headers {
		shown[name] = Masked
	}
	return shown
}

// Validate checks what is said of checks by itself, the names of headers included, but not their values. Errors are validation
// errors of its fields.
func (h *Health) Validate() error {
	if h.IsZero() && h.kinds() == 0 {
		return nil
	}
	var kind, path, service, statuses, headers error
	if h.kinds() != 1 {
		kind = fault.Invalid("", "must have exactly one of path, grpc and tcp: path: /healthz for a request, grpc: SERVICE for a call of grpc.health.v1, or tcp: true for a connection alone")
	}
	if h.Path != "" && !isHealthPath(h.Path) {
		path = fault.Invalid("path", "must begin with / and have at most %d printable ASCII characters without spaces, \" or #, as in /healthz", maxHealthPath)
	}
	if h.GRPC != nil && (len(*h.GRPC) > maxHealthService || strings.ContainsFunc(*h.GRPC, func(r rune) bool { return r <= ' ' || r >= 0x7f })) {
		service = fault.Invalid("grpc", "must be the name of a service, of at most %d printable ASCII characters, as in orders.v1.Orders, or empty for the server as a whole", maxHealthService)
	}
	if h.Statuses != "" {
		if _, err := ParseStatuses(h.Statuses); err != nil {
			statuses = err
		} else if h.Path == "" && h.kinds() == 1 {
			statuses = fault.Invalid("statuses", "needs path: leave it out, since only a request has a status")
		}
	}
	if len(h.Headers) > 0 && !h.TakesHeaders() {
		headers = fault.Invalid("headers", "needs path or grpc: leave it out, since a check by tcp sends nothing")
	}
	return fault.Join(kind, path, service,
		durationWithin("interval", h.Interval, minHealthInterval, maxHealthInterval, "10s or 1m"),
		durationWithin("timeout", h.Timeout, minHealthTimeout, maxHealthTimeout, "2s"),
		thresholdWithin("unhealthy", h.Unhealthy), thresholdWithin("healthy", h.Healthy), statuses, headers)
}

func (h *Health) kinds() (n int) {
	for _, given := range []bool{h.Path != "", h.GRPC != nil, h.TCP} {
		if given {
			n++
		}
	}
	return n
}

func isHealthPath(s string) bool {
	return s[0] == '/' && len(s) <= maxHealthPath && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' || r == '"' })
}

func durationWithin(field, s string, least, most time.Duration, example string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < least || d > most {
		return fault.Invalid(field, "must be a duration between %s and %s, such as %s", shortDuration(least), shortDuration(most), example)
	}
	return nil
}

// shortDuration returns a duration without the units that are zero: 1h for 1h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func thresholdWithin(field string, n int) error {
	if n < 1 || n > maxHealthThreshold {
		return fault.Invalid(field, "must be between 1 and %d", maxHealthThreshold)
	}
	return nil
}

// CheckHealthHeaders checks the headers of checks, by the rules of CheckUpstreamHeaders; Keygate sets User-Agent itself. Errors
// are validation errors of "health.headers" or of a field of it.
func CheckHealthHeaders(h map[string]string) error {
	const field = "health.headers"
	var agent error
	for name := range h {
		if strings.EqualFold(name, "user-agent") {
			agent = fault.Invalid(field+"."+name, "is reserved: Keygate names itself with it, as Keygate-Health/ and its version")
		}
	}
	return fault.Join(checkHeaderSet(field, h), agent)
}

// checkHealth is Validate for a patch, in which a header's value may be Masked.
func checkHealth(h Health) error {
	return fault.Join(fault.Prefixed("health", h.Validate()), CheckHealthHeaders(unmasked(h.Headers)))
}

// StatusRange is the statuses from First to Last.
type StatusRange struct{ First, Last int }

// ParseStatuses parses statuses and ranges of them, separated by commas, as in "200,204,300-302". The error is a validation error
// of the field "statuses".
func ParseStatuses(s string) ([]StatusRange, error) {
	bad := fault.Invalid("statuses", "must be at most %d statuses between 200 and 599 or ranges of them, separated by commas, such as 200-399 or 200,204", maxHealthStatuses)
	var list []StatusRange
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		r := StatusRange{parseStatus(first), parseStatus(last)}
		if r.First == 0 || r.Last < r.First || len(list) == maxHealthStatuses {
			return nil, bad
		}
		list = append(list, r)
	}
	return list, nil
}

// parseStatus returns a final status, or 0.
func parseStatus(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || len(s) != 3 || n < 200 || n > 599 {
		return 0
	}
	return n
}

func (h *Health) parts() []part {
	duration := func(name string, to *string, doc string) part {
		return textPart(name, to, orNull(schema{"type": "string", "minLength": 2, "description": doc}))
	}
	return []part{
		textPart("path", &h.Path, orNull(schema{"type": "string", "minLength": 1, "maxLength": maxHealthPath, "description": "Path, from the root of the target's origin, that is requested with GET.", "examples": []any{"/healthz"}})),
		{"grpc", func(m *document.Node, at string) error {
			text, err := m.ReadText(at)
			h.GRPC = &text
			return err
		}, orNull(schema{"type": "string", "maxLength": maxHealthService, "description": "Service whose health is asked for by grpc.health.v1; empty for the server as a whole. Needs https or h2c targets."})},
		boolPart("tcp", &h.TCP, "true if a connection is enough. Default: false."),
		duration("interval", &h.Interval, "Time from one check to the next, as a Go duration from 1s to 1h; it varies by a tenth. Default: 10s."),
		duration("timeout", &h.Timeout, "Timeout of a check, as a Go duration from 100ms to 1m. Default: 2s."),
		countPart("unhealthy", &h.Unhealthy, 1, maxHealthThreshold, "How many bad checks in a row take a target out. Default: 2."),
		countPart("healthy", &h.Healthy, 1, maxHealthThreshold, "How many good checks in a row take it in again. Default: 2."),
		{"statuses", func(m *document.Node, at string) (err error) {
			if m.Kind == document.Number { // statuses: 204
				h.Statuses = strings.Clone(m.Text)
				return nil
			}
			h.Statuses, err = m.ReadText(at)
			return err
		}, schema{"type": []any{"string", "integer", "null"}, "description": "Statuses that are good, with path: codes and ranges separated by commas, as in 200-299,304. Default: 200-399."}},
		{"headers", func(m *document.Node, at string) (err error) {
			h.Headers, err = readHeaders(m, at)
			return err
		}, orNull(headersValue().withDoc("Headers of checks. The values are secret: write them as ${env:NAME}. *** keeps the value that the gateway has. Absent keeps those in force."))},
	}
}

func healthValue() valueType[Health] {
	return valueType[Health]{readHealth, encodeHealth, schemaOf((&Health{}).parts())}
}

func readHealth(n *document.Node, field string) (Health, error) {
	h := DefaultHealth()
	err := readParts(n, field, "health", h.parts())
	if m := n.Member("headers"); n.Kind == document.Mapping && m != nil && m.Kind == document.Null {
		h.Headers = map[string]string{}
	}
	return h.WithDefaults(), err
}

func encodeHealth(b *bytes.Buffer, h Health) {
	switch {
	case h.Path != "":
		b.WriteString(" {path: " + inFlow(h.Path))
	case h.GRPC != nil:
		b.WriteString(" {grpc: " + inFlow(*h.GRPC))
	default:
		b.WriteString(" {tcp: true")
	}
	fmt.Fprintf(b, ", interval: %s, timeout: %s, unhealthy: %d, healthy: %d", yamlDuration(h.Interval), yamlDuration(h.Timeout), h.Unhealthy, h.Healthy)
	if h.Statuses != "" {
		b.WriteString(", statuses: " + inFlow(h.Statuses))
	}
	if h.Headers != nil {
		var list []string
		for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
			list = append(list, inFlow(name)+": "+inFlow(h.Headers[name]))
		}
		b.WriteString(", headers: {" + strings.Join(list, ", ") + "}")
	}
	b.WriteString("}\n")
}
