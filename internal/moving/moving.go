// Package moving turns the configuration of other gateways into configuration files and keys of Keygate, with a report
// that says of each object what became of it (contract, edge.md, section 5). It reads texts that it is given, and opens no
// file and no connection.
//
// A credential that a request needed is needed afterwards too: what cannot be said in Keygate is left out and reported, and
// a path whose route was left out is closed where another route would take its requests.
package moving

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// Bounds of what is read (docs/limits.md).
const (
	// MaxFile is the maximum number of bytes of a file.
	MaxFile = 16 << 20
	// MaxFiles is the maximum number of files of one import.
	MaxFiles = 100
	// maxRoutes is the maximum number of routes of all gateways that an import makes.
	maxRoutes = 500_000
	// maxKeys is the maximum number of keys that an import makes.
	maxKeys = 1_000_000
	// maxPatterns is the maximum number of different paths of a gateway.
	maxPatterns = 100_000
	// maxCompared is the same for a gateway with regular expressions, whose paths are compared with one another.
	maxCompared = 5_000
	// maxTemplates is the maximum number of regular expressions of a gateway that are compared with one another.
	maxTemplates = 200
)

// tooLarge is the error for a file beyond MaxFile.
func tooLarge() error {
	return document.Position{Line: 1, Column: 1}.Invalid("", "the file has more than %d MiB: split it, and import the parts together", MaxFile>>20)
}

// State says what became of an object.
type State string

// The states.
const (
	Carried State = "carried"
	Changed State = "carried with a change"
	Left    State = "not carried"
)

// Line is a line of the report.
type Line struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Object string `json:"object"` // such as "route orders"
	State  State  `json:"state"`
	Why    string `json:"why,omitempty"`
	Remedy string `json:"remedy,omitempty"` // what to do
}

// String returns the line as FILE:LINE: object: state (why; what to do).
func (l Line) String() string {
	s := fmt.Sprintf("%s:%d: %s: %s", l.File, l.Line, l.Object, l.State)
	switch {
	case l.Why != "" && l.Remedy != "":
		s += " (" + l.Why + "; " + l.Remedy + ")"
	case l.Why != "":
		s += " (" + l.Why + ")"
	}
	return s
}

// File is a configuration file to write.
type File struct {
	Name    string // of the file, without a directory
	Content []byte
}

// Key is a key to import: an item of the body of importKeys. It has the SHA-256 of the key and not the key itself.
type Key struct {
	SHA256     string            `json:"sha256"` // in hexadecimal digits
	Name       string            `json:"name"`
	Scope      string            `json:"scope"`
	Owner      string            `json:"owner,omitempty"`
	Plan       string            `json:"plan,omitempty"` // by name
	RateLimit  *KeyLimit         `json:"rate_limit,omitempty"`
	AllowIPs   []string          `json:"allow_ips,omitempty"`
	DenyIPs    []string          `json:"deny_ips,omitempty"`
	ExpiresAt  string            `json:"expires_at,omitempty"` // RFC 3339
	LastUsedAt string            `json:"last_used_at,omitempty"`
	KeyPrefix  string            `json:"key_prefix,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
}

// KeyLimit is the limit of a key.
type KeyLimit struct {
	Sustained string `json:"sustained"`
	Burst     string `json:"burst,omitempty"`
}

// Result is what an import makes.
type Result struct {
	Files  []File // of gateways, and one of plans
	Keys   []Key
	Report []Line // in the order of the files and lines
	// Origins are those of routes that are not closed; nil if there is no other gateway that had routes.
	Origins []Origin
}

// Count returns how many lines of the report have a state.
func (r *Result) Count(v State) (n int) {
	for i := range r.Report {
		if r.Report[i].State == v {
			n++
		}
	}
	return n
}

// ReportText returns the report as text, a line for each entry.
func (r *Result) ReportText() []byte {
	var b bytes.Buffer
	for _, l := range r.Report {
		b.WriteString(l.String() + "\n")
	}
	return b.Bytes()
}

// KeysText returns the keys as the content of keys.json.
func (r *Result) KeysText() ([]byte, error) {
	keys := r.Keys
	if keys == nil {
		keys = []Key{}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(map[string]any{"keys": keys})
	return b.Bytes(), err
}

// at is where an object stands.
type at struct {
	file string
	line int
}

// report collects lines.
type report struct {
	lines   []Line
	seen    map[Line]bool
	objects map[[2]string]bool // that have a line, by file and object
}

func (r *report) add(p at, object string, v State, why, remedy string) {
	l := Line{p.file, p.line, object, v, why, remedy}
	if r.seen == nil {
		r.seen, r.objects = map[Line]bool{}, map[[2]string]bool{}
	}
	if !r.seen[l] {
		r.seen[l] = true
		r.objects[[2]string{p.file, object}] = true
		r.lines = append(r.lines, l)
	}
}

// has reports whether an object of a file has a line.
func (r *report) has(p at, object string) bool { return r.objects[[2]string{p.file, object}] }

func (r *report) carried(p at, object string) { r.add(p, object, Carried, "", "") }

func (r *report) changed(p at, object, why string, args ...any) {
	r.add(p, object, Changed, fmt.Sprintf(why, args...), "")
}

func (r *report) left(p at, object, why, remedy string) { r.add(p, object, Left, why, remedy) }

// sorted returns the lines in the order of the files, as they were given, and of their lines.
func (r *report) sorted(files []string) []Line {
	order := map[string]int{}
	for i, f := range files {
		order[f] = i
	}
	slices.SortStableFunc(r.lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line))
	})
	return r.lines
}

// short returns a text of a file for a message.
func short(s string) string { return document.Short(strings.ToValidUTF8(s, "�")) }

// slug returns a name of the characters a-z, 0-9, - and _, at most most long, for s. It is "" if nothing of s is left.
func slug(s string, most int) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '_':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	name := b.String()
	return strings.Trim(name[:min(len(name), most)], "-")
}

// unique returns name, or name with a number behind it, so that used does not have it. It adds the result to used.
func unique(used map[string]bool, name string, most int) string {
	unused := name
	for i := 2; used[unused]; i++ {
		number := fmt.Sprintf("-%d", i)
		unused = name[:min(len(name), most-len(number))] + number
	}
	used[unused] = true
	return unused
}
