package gateway

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Bounds of splits (targets.md, section 7).
const (
	MaxSplitEntries     = 16       // of a split
	MaxSplitNames       = 100      // keys, or owners, of an entry
	MaxSplitHeaderValue = 256      // bytes of the value of a header
	MaxSplitBytes       = 64 << 10 // of a split, as JSON
	MaxSplits           = 1_000    // different ones of a gateway's routes
	MaxAllSplitBytes    = 1 << 20  // of these, as JSON
	MaxSplitKeys        = 1_000    // that these name
)

// splitField is the name of the setting of a gateway, and of the field of a route.
const splitField = "split"

// Split says which requests go to which upstream (targets.md, section 7). The first entry whose When holds decides, else the one
// that has a weight; all other requests go to the upstream of the route.
//
// A route with a Split that is not nil does not use that of its gateway: the empty one splits nothing. For a gateway, the empty
// Split is nil. A Split must not be changed: routes share it.
type Split []SplitEntry

// SplitEntry is one entry of a Split. It has either a Weight or a When. The store and the API keep it as JSON, so the names are
// part of the stored form.
type SplitEntry struct {
	Upstream string     `json:"upstream"` // by name, also DefaultUpstream
	Weight   *Percent   `json:"weight,omitempty"`
	Random   bool       `json:"random,omitempty"`   // sticky: false: a caller does not stay on its side
	Fallback bool       `json:"fallback,omitempty"` // while no target of a side takes part, the other side serves
	When     *SplitWhen `json:"when,omitempty"`
}

// SplitWhen is the condition of an entry: exactly one of Header, Key and Owner is set.
type SplitWhen struct {
	Header map[string]string `json:"header,omitempty"` // one header with its value
	Key    []string          `json:"key,omitempty"`    // identifiers of keys; each stands for all keys of its rotations
	Owner  []string          `json:"owner,omitempty"`  // external IDs

	// Buckets are the identifiers by which the data plane knows the keys of Key that were rotated: of the first keys of their
	// rotations.
	Buckets []string `json:"buckets,omitempty"`
}

// Percent is a number of hundredths of a percent. A negative one stands for what is not such a number.
type Percent int64

const (
	hundred    Percent = 100_00
	notPercent Percent = -1
)

// ParsePercent parses a decimal number with at most two decimals. It returns a negative number for any other text.
func ParsePercent(s string) Percent {
	whole, decimals, some := strings.Cut(s, ".")
	isDigits := func(s string) bool { return s != "" && len(s) <= 9 && strings.Trim(s, "0123456789") == "" }
	if !isDigits(whole) || some && (!isDigits(decimals) || len(decimals) > 2) {
		return notPercent
	}
	n, err := strconv.ParseInt(whole+(decimals + "00")[:2], 10, 64)
	if err != nil {
		return notPercent
	}
	return Percent(n)
}

// String returns the number in percent, with as few decimals as it needs.
func (p Percent) String() string {
	s := strconv.FormatInt(int64(p/100), 10)
	if p%100 == 0 {
		return s
	}
	return strings.TrimRight(s+"."+strconv.FormatInt(100+int64(p%100), 10)[1:], "0")
}

// MarshalJSON returns a number.
func (p Percent) MarshalJSON() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalJSON reads a number. One that is no Percent becomes a negative one, which Split.Check refuses.
func (p *Percent) UnmarshalJSON(b []byte) error {
	*p = ParsePercent(string(b))
	return nil
}

// Equal reports whether two splits are equal. For routes, nil and an empty one are not.
func (s Split) Equal(o Split) bool {
	switch {
	case len(s) != len(o) || (s == nil) != (o == nil):
		return false
	case len(s) == 0 || &s[0] == &o[0]:
		return true
	}
	return reflect.DeepEqual(s, o)
}

// AppendJSON appends the stored form.
func (s Split) AppendJSON(b []byte) []byte {
	text, err := json.Marshal([]SplitEntry(s))
	if err != nil {
		return b // no entry has anything that is not JSON
	}
	return append(b, text...)
}

// Names calls yield for each upstream that the split names, with the index of the entry.
func (s Split) Names(yield func(int, string) bool) {
	for i := range s {
		if !yield(i, s[i].Upstream) {
			return
		}
	}
}

// NamesUpstream reports whether an entry names the upstream.
func (s Split) NamesUpstream(name string) bool {
	return slices.ContainsFunc(s, func(e SplitEntry) bool { return e.Upstream == name })
}

// Keys returns the keys that the entries name, each once.
func (s Split) Keys() []string {
	var all []string
	for i := range s {
		if w := s[i].When; w != nil {
			all = append(all, w.Key...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// WithBuckets returns the split with the Buckets of its keys. bucket has the first key of the rotations of each key that was
// rotated.
func (s Split) WithBuckets(bucket map[string]string) Split {
	out := slices.Clone(s)
	for i := range out {
		w := out[i].When
		if w == nil || len(w.Key) == 0 {
			continue
		}
		next := *w
		next.Buckets = nil
		for _, key := range w.Key {
			if b := bucket[key]; b != "" && b != key && !slices.Contains(next.Buckets, b) {
				next.Buckets = append(next.Buckets, b)
			}
		}
		out[i].When = &next
	}
	return out
}

// Fields returns the split as the API shows it, for diffs and the audit log.
func (s Split) Fields() []map[string]any {
	list := make([]map[string]any, len(s))
	for i := range s {
		e := &s[i]
		list[i] = map[string]any{"upstream": e.Upstream, "weight": nil, "sticky": !e.Random, "fallback": e.Fallback, "when": nil}
		if e.Weight != nil {
			list[i]["weight"] = *e.Weight
		}
		switch w := e.When; {
		case w == nil:
		case w.Header != nil:
			list[i]["when"] = map[string]any{"header": w.Header}
		case w.Key != nil:
			list[i]["when"] = map[string]any{"key": w.Key}
		default:
			list[i]["when"] = map[string]any{"owner": w.Owner}
		}
	}
	return list
}

// SplitOf returns the split of a route of g that has the split s.
func (g *Gateway) SplitOf(s Split) Split {
	if s == nil {
		return g.Requests.Split
	}
	return s
}

// splitSet is the different splits of a gateway's routes. The zero value is empty.
type splitSet struct {
	texts map[string]struct{}
	known map[*SplitEntry]struct{} // those of texts that routes share
	keys  map[string]struct{}
	bytes int
}

// add adds a split, and says which bound of route tables it exceeds, or returns "".
func (s *splitSet) add(split Split) string {
	if len(split) == 0 {
		return ""
	}
	if _, known := s.known[&split[0]]; known {
		return ""
	}
	if s.texts == nil {
		s.texts, s.known, s.keys = map[string]struct{}{}, map[*SplitEntry]struct{}{}, map[string]struct{}{}
	}
	s.known[&split[0]] = struct{}{}
	text := string(split.AppendJSON(nil))
	if _, known := s.texts[text]; known {
		return ""
	}
	s.texts[text] = struct{}{}
	s.bytes += len(text)
	for _, keyID := range split.Keys() {
		s.keys[keyID] = struct{}{}
	}
	switch {
	case len(s.keys) > MaxSplitKeys:
		return manySplitKeys
	case len(s.texts) > MaxSplits:
		return manySplits
	case s.bytes > MaxAllSplitBytes:
		return largeSplits
	}
	return ""
}

// splitBytes returns the number of bytes of a split as JSON.
func splitBytes(s Split) int64 {
	if s == nil {
		return 0
	}
	return int64(min(len(s.AppendJSON(nil)), math.MaxInt32))
}
