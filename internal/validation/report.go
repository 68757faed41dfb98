package validation

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/validate"
)

// The bounds of a Report.
const (
	// MaxRows is the number of different problems of a gateway that are told apart. Requests with others are counted too.
	MaxRows = 100
	// MaxLast is the number of times and keys of a problem, the newest ones.
	MaxLast = 100
	// MaxKeys is the number of keys up to which different ones are counted.
	MaxKeys = 100
	// Hours is the time that a Report covers: the hour that runs and those before it.
	Hours = 24
)

// Report is what the requests of a gateway did otherwise than its document says, in the last Hours. It is stored as JSON.
type Report struct {
	AccountID string `json:"-"`
	GatewayID string `json:"-"`

	Totals Counts `json:"totals"`
	Rows   []*Row `json:"rows,omitempty"`
}

// Counts are requests by the hour.
type Counts struct {
	// Hours has the requests of each hour, by its number since 1970, the earliest first.
	Hours []HourCount `json:"hours,omitempty"`
	// Keys are the keys of requests that would be refused, at most MaxKeys of them.
	Keys []string `json:"keys,omitempty"`
}

// HourCount are the requests of one hour.
type HourCount struct {
	Hour      int64 `json:"hour"`
	Requests  int64 `json:"requests"`
	Refused   int64 `json:"refused,omitempty"`   // would be refused, or were
	Unchecked int64 `json:"unchecked,omitempty"` // could not be checked
}

// Row are the requests with one problem.
type Row struct {
	Method  string `json:"method"`
	Path    string `json:"path"`
	In      string `json:"in"`
	Schema  string `json:"schema"`
	Rule    string `json:"rule"`
	Message string `json:"message"`
	Counts
	Last []Last `json:"last,omitempty"` // the newest first
}

// Last is when a request was made, and with which key; "" without one.
type Last struct {
	At    time.Time `json:"at"`
	KeyID string    `json:"key,omitempty"`
}

// add counts a request; grow says whether there may be more rows.
func (r *Report) add(e *Entry, grow bool) {
	c := HourCount{Hour: e.At.Unix() / 3600, Requests: 1}
	if !e.Checked {
		c.Unchecked = 1
	}
	if len(e.Problems) > 0 {
		c.Refused = 1
		r.Totals.addKey(e.KeyID)
	}
	r.Totals.addHour(c)
	var counted []*Row
	for i := range e.Problems {
		p := &e.Problems[i]
		row := r.row(&Row{Method: e.Method, Path: e.Path, In: p.In, Schema: p.Schema, Rule: p.Rule, Message: messageOf(p)}, grow)
		if row == nil || slices.Contains(counted, row) { // it is one request
			continue
		}
		counted = append(counted, row)
		row.addHour(HourCount{Hour: c.Hour, Requests: 1})
		row.addKey(e.KeyID)
		row.addLast(Last{e.At.UTC().Truncate(time.Second), e.KeyID})
	}
}

// messageOf returns what a report says of a problem.
func messageOf(p *validate.Problem) string {
	name := parameterOf(p)
	if p.In == validate.InBody {
		name = propertyOf(p.Schema)
	}
	if name != "" {
		return name + " " + p.Message
	}
	return p.Message
}

func (r *Row) equal(o *Row) bool {
	return r.Method == o.Method && r.Path == o.Path && r.In == o.In && r.Schema == o.Schema && r.Rule == o.Rule && r.Message == o.Message
}

// row returns the row of r that is like the given one, which it becomes if there is none. It returns nil if there is no room.
func (r *Report) row(like *Row, grow bool) *Row {
	if i := slices.IndexFunc(r.Rows, like.equal); i >= 0 {
		return r.Rows[i]
	}
	if !grow || len(r.Rows) >= MaxRows {
		return nil
	}
	r.Rows = append(r.Rows, like)
	return like
}

func (c *Counts) addHour(h HourCount) {
	i, found := slices.BinarySearchFunc(c.Hours, h.Hour, func(a HourCount, hour int64) int { return cmp.Compare(a.Hour, hour) })
	if !found {
		c.Hours = slices.Insert(c.Hours, i, HourCount{Hour: h.Hour})
	}
	c.Hours[i].Requests += h.Requests
	c.Hours[i].Refused += h.Refused
	c.Hours[i].Unchecked += h.Unchecked
}

func (c *Counts) addKey(key string) {
	if key != "" && len(c.Keys) < MaxKeys && !slices.Contains(c.Keys, key) {
		c.Keys = append(c.Keys, key)
	}
}

func (r *Row) addLast(l Last) {
	i, _ := slices.BinarySearchFunc(r.Last, l, func(a, b Last) int { return b.At.Compare(a.At) })
	r.Last = slices.Insert(r.Last, i, l)
	r.Last = r.Last[:min(len(r.Last), MaxLast)]
}

// Sum returns the requests of all hours.
func (c *Counts) Sum() (s HourCount) {
	for _, h := range c.Hours {
		s.Requests += h.Requests
		s.Refused += h.Refused
		s.Unchecked += h.Unchecked
	}
	return s
}

// trim removes the hours before first.
func (c *Counts) trim(first int64) {
	c.Hours = slices.DeleteFunc(c.Hours, func(h HourCount) bool { return h.Hour < first })
	if c.Sum().Requests == 0 {
		c.Keys = nil
	}
}

// Trim removes what is older than Hours at now.
func (r *Report) Trim(now time.Time) {
	first := now.Unix()/3600 - Hours
	r.Totals.trim(first)
	for _, row := range r.Rows {
		row.trim(first)
	}
	r.Rows = slices.DeleteFunc(r.Rows, func(row *Row) bool { return len(row.Hours) == 0 })
}

// Merge adds what another report of the gateway has counted.
func (r *Report) Merge(o *Report) {
	r.Totals.merge(&o.Totals)
	for _, from := range o.Rows {
		row := r.row(&Row{Method: from.Method, Path: from.Path, In: from.In, Schema: from.Schema, Rule: from.Rule, Message: from.Message}, true)
		if row == nil {
			continue
		}
		row.merge(&from.Counts)
		for _, l := range slices.Backward(from.Last) {
			row.addLast(l)
		}
	}
}

func (c *Counts) merge(o *Counts) {
	for _, h := range o.Hours {
		c.addHour(h)
	}
	for _, k := range o.Keys {
		c.addKey(k)
	}
}

// Encode returns the stored form.
func (r *Report) Encode() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // it consists of texts and numbers
	}
	return text
}

// Decode reads the stored form.
func Decode(text []byte) (*Report, error) {
	r := &Report{}
	err := json.Unmarshal(text, r)
	return r, err
}
