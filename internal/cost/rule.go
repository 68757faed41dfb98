package cost

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// The bounds of rules (plans.md, section 5; docs/limits.md).
const (
	MaxRules    = ratelimit.MaxCosts // of a route
	MaxUnits    = ratelimit.MaxUnits // of a meter, for one request
	MaxFields   = 16                 // of json, and of each of prices
	MaxPrices   = 64                 // of a rule
	MaxPriceKey = 255                // bytes of a value of by
	MaxField    = 255                // bytes of a field
	MaxPaths    = 8                  // of a field
	MaxAllPaths = 64                 // of a rule, without repetitions
	MaxText     = 16 << 10           // bytes of all texts of a rule
	maxMeter    = 32                 // bytes of the name of a meter
	maxHeader   = 128                // bytes of the name of a header
)

// Rules are the property "cost" of a route: at most MaxRules, each for another meter.
type Rules []Rule

// Rule says what a request costs of one meter. Rules that Read returns are valid and have their defaults.
type Rule struct {
	Meter   string
	Reserve int64 // taken before forwarding; 0 to Max
	Max     int64 // no request counts for more
	From    From
	Unknown Unknown
}

// Source is where a rule finds the figure.
type Source uint8

// The sources.
const (
	FromRequest Source = iota + 1 // a price for each forwarded request
	FromHeader                    // a header or trailer of the response
	FromJSON                      // fields of the body of the response
)

// From says where a figure is found. Only the fields of its source are set.
type From struct {
	Source Source

	Price int64 // FromRequest: units of each request

	Header string // FromHeader: its name
	Expose bool   // FromHeader: it is passed on to the client

	JSON   []Field // FromJSON: what is summed, in the order of the text
	By     string  // FromJSON: the field whose value selects one of Prices; "" for none
	Prices []Price // FromJSON: other weights, in the order of the text
}

// Field is a field of the response and its weight.
type Field struct {
	Name   string // as it is written; the package comment has the grammar
	Weight Weight
}

// Price is the fields that count if the field By has a value.
type Price struct {
	Value  string
	Fields []Field
}

// Fallback is what a request costs at least if its cost is unknown.
type Fallback uint8

// The fallbacks.
const (
	UnknownMax      Fallback = iota // Max
	UnknownReserve                  // Reserve
	UnknownBytesIn                  // Weight for each byte of the request's body
	UnknownBytesOut                 // Weight for each byte of the response's body
)

// Unknown says what a request costs at least if its cost is unknown.
type Unknown struct {
	Fallback Fallback
	Weight   Weight // of UnknownBytesIn and UnknownBytesOut; above 0
}

// ReadsBody reports whether a rule needs the body of the response.
func (rules Rules) ReadsBody() bool { return rules.have(FromJSON) }

// ReadsResponse reports whether a rule needs the response, so that its encoding and its completeness matter.
func (rules Rules) ReadsResponse() bool { return rules.have(FromJSON) || rules.have(FromHeader) }

func (rules Rules) have(s Source) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.From.Source == s })
}

// Of returns the index of the rule for the meter, or -1.
func (rules Rules) Of(meter string) int {
	return slices.IndexFunc(rules, func(r Rule) bool { return r.Meter == meter })
}

// Equal reports whether both have the same effect. The order of rules, fields and prices makes no difference.
func (rules Rules) Equal(o Rules) bool {
	return sameSet(rules, o, func(a, b Rule) bool { return a.Equal(&b) })
}

// Equal reports whether both have the same effect. The order of fields and prices makes no difference.
func (r *Rule) Equal(o *Rule) bool {
	a, b := &r.From, &o.From
	return r.Meter == o.Meter && r.Reserve == o.Reserve && r.Max == o.Max && r.Unknown == o.Unknown &&
		a.Source == b.Source && a.Price == b.Price && strings.EqualFold(a.Header, b.Header) && a.Expose == b.Expose && a.By == b.By && sameFields(a.JSON, b.JSON) &&
		sameSet(a.Prices, b.Prices, func(p, q Price) bool { return p.Value == q.Value && sameFields(p.Fields, q.Fields) })
}

func sameFields(a, b []Field) bool {
	return sameSet(a, b, func(f, g Field) bool { return f == g })
}

// sameSet reports whether a and b, in which no element is there twice, have the same elements.
func sameSet[T any](a, b []T, same func(T, T) bool) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x T) bool {
		return !slices.ContainsFunc(b, func(y T) bool { return same(x, y) })
	})
}

// Clone returns a copy that shares no memory with rules, but for strings.
func (rules Rules) Clone() Rules {
	c := slices.Clone(rules)
	for i := range c {
		c[i].From.JSON = slices.Clone(c[i].From.JSON)
		c[i].From.Prices = slices.Clone(c[i].From.Prices)
		for j := range c[i].From.Prices {
			c[i].From.Prices[j].Fields = slices.Clone(c[i].From.Prices[j].Fields)
		}
	}
	return c
}

// Validate checks the rules. The error is a validation error that names every invalid field, as in "[0].max".
func (rules Rules) Validate() error {
	if len(rules) > MaxRules {
		return tooManyRules()
	}
	var problems []error
	for i := range rules {
		err := rules[i].check()
		if at := rules[:i].Of(rules[i].Meter); at >= 0 {
			err = fault.Join(err, fault.Invalid("meter", "must be unique in the list: [%d] has it, too; join both", at))
		}
		problems = append(problems, fault.Prefixed(fmt.Sprintf("[%d]", i), err))
	}
	return fault.Join(problems...)
}

func tooManyRules() error {
	return fault.Invalid("", "must have at most %d costs, one for each meter", MaxRules)
}

func (r *Rule) check() error {
	problems := []error{checkMeter(r.Meter), r.checkAmounts(), fault.Prefixed("from", r.From.check()), r.checkUnknown()}
	if n := r.textLength(); n > MaxText {
		problems = append(problems, fault.Invalid("from", "must have at most %d bytes, all names and values together, not %d: leave out prices or shorten names", MaxText, n))
	}
	return fault.Join(problems...)
}

func checkMeter(meter string) error {
	switch {
	case meter == ratelimit.BytesIn || meter == ratelimit.BytesOut:
		return fault.Invalid("meter", "%s is counted on every route, as the access record counts it: leave out its cost", meter)
	case !IsMeter(meter):
		return fault.Invalid("meter", "must have 1 to %d characters of a-z, 0-9 and _, such as tokens", maxMeter)
	}
	return nil
}

// IsMeter reports whether s can be the name of a meter.
func IsMeter(s string) bool {
	return s != "" && len(s) <= maxMeter && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

func (r *Rule) checkAmounts() error {
	var badReserve, badMax error
	least := int64(1) // of a max; a price may be 0
	if r.From.Source == FromRequest {
		least = 0
	}
	switch {
	case r.From.Source == FromRequest && r.From.checkPrice() != nil: // nothing to compare with
		return nil
	case r.Max < least || r.Max > MaxUnits:
		badMax = fault.Invalid("max", "must be a whole number from %d to %d", least, int64(MaxUnits))
	case r.From.Source == FromRequest && r.Max < r.From.Price:
		badMax = fault.Invalid("max", "must be at least %d, what each request costs: leave it out", r.From.Price)
	}
	switch {
	case r.Reserve < 0 || r.Reserve > MaxUnits:
		badReserve = fault.Invalid("reserve", "must be a whole number from 0 to %d", int64(MaxUnits))
	case badMax == nil && r.Reserve > r.Max:
		badReserve = fault.Invalid("reserve", "must be at most %d, the max: lower it, or raise max", r.Max)
	}
	return fault.Join(badReserve, badMax)
}

func (r *Rule) checkUnknown() error {
	of := ""
	switch r.Unknown.Fallback {
	case UnknownMax, UnknownReserve:
		if r.Unknown.Weight != 0 {
			return fault.Invalid("unknown", "has a weight without bytes_in or bytes_out")
		}
	case UnknownBytesIn:
		of = ratelimit.BytesIn
	case UnknownBytesOut:
		of = ratelimit.BytesOut
	default:
		return badUnknown()
	}
	switch {
	case of != "" && (r.Unknown.Weight <= 0 || r.Unknown.Weight > MaxWeight):
		return fault.Invalid("unknown."+of, "must be a number above 0 and up to 1000000, such as 0.25")
	case r.From.Source == FromRequest && r.Unknown != Unknown{}:
		return fault.Invalid("unknown", "needs header or json: leave it out for request, whose cost is always known")
	}
	return nil
}

func badUnknown() error {
	return fault.Invalid("unknown", "must be max, reserve, {bytes_in: WEIGHT} or {bytes_out: WEIGHT}")
}

func (f *From) check() error {
	switch f.Source {
	case FromRequest:
		return f.checkPrice()
	case FromHeader:
		return checkHeader(f.Header)
	case FromJSON:
		return f.checkJSON()
	}
	return badSource()
}

func (f *From) checkPrice() error {
	if f.Price < 0 || f.Price > MaxUnits {
		return fault.Invalid("request", "must be a whole number from 0 to %d", int64(MaxUnits))
	}
	return nil
}

func badSource() error {
	return fault.Invalid("", "must have exactly one of request, header and json")
}

// checkHeader checks the name of a response header that is read and, as a rule, removed.
func checkHeader(name string) error {
	if len(name) > maxHeader || !isToken(name) {
		return fault.Invalid("header", "%.40q is not a valid header name: it must have 1 to %d characters of a token, as in X-Tokens-Used", name, maxHeader)
	}
	lower := strings.ToLower(name)
	switch lower {
	case "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
		"content-length", "content-type", "content-encoding", "content-range", "location", "set-cookie", "www-authenticate":
		return fault.Invalid("header", "%s has a meaning in HTTP: let the upstream send the cost in a header of its own, such as X-Tokens-Used", lower)
	case "x-request-id", "ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset":
		return fault.Invalid("header", "%s is written by Keygate: let the upstream send the cost in a header of its own, such as X-Tokens-Used", lower)
	}
	return nil
}

// isToken reports whether s is a token (RFC 9110, 5.6.2).
func isToken(s string) bool {
	const members = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	return s != "" && strings.Trim(s, members) == ""
}

func (f *From) checkJSON() error {
	problems := []error{fault.Prefixed("json", checkFields(f.JSON))}
	switch {
	case f.By == "" && len(f.Prices) > 0:
		problems = append(problems, fault.Invalid("by", "is required with prices: give the field whose value selects one of them, such as model"))
	case f.By != "" && len(f.Prices) == 0:
		problems = append(problems, fault.Invalid("prices", "is required with by: give weights for at least one of its values"))
	case f.By != "":
		_, optional, err := parseField(f.By)
		if err == nil && optional {
			err = fault.Invalid("", "must not end in ?: without a value, json counts")
		}
		problems = append(problems, fault.Prefixed("by", err))
	}
	if len(f.Prices) > MaxPrices {
		return fault.Join(append(problems, fault.Invalid("prices", "must have at most %d values", MaxPrices))...)
	}
	paths := map[string]bool{}
	for path := range f.paths() {
		paths[path] = true
	}
	if len(paths) > MaxAllPaths {
		problems = append(problems, fault.Invalid("", "must have at most %d different paths in json, by and prices together, not %d", MaxAllPaths, len(paths)))
	}
	for i := range f.Prices {
		p := &f.Prices[i]
		err := checkFields(p.Fields)
		switch {
		case p.Value == "" || len(p.Value) > MaxPriceKey || !isText(p.Value):
			err = fault.Join(fault.Invalid("", "must be a value of 1 to %d bytes in UTF-8, without control characters", MaxPriceKey), err)
		case strings.Contains(p.Value, document.EnvMark):
			err = fault.Join(fault.Invalid("", envForbidden), err)
		case slices.ContainsFunc(f.Prices[:i], func(o Price) bool { return o.Value == p.Value }):
			err = fault.Join(fault.Invalid("", "is there twice"), err)
		}
		problems = append(problems, fault.Prefixed(below("prices", shown(p.Value)), err))
	}
	return fault.Join(problems...)
}

// envForbidden is the error for a name: a configuration file replaces variables in values alone.
const envForbidden = "must not contain ${env:, which configuration files replace in values alone: write the name itself"

// isText reports whether s is UTF-8 without control characters, so that it can be shown.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) }

// paths returns the paths of all fields, as they are written.
func (f *From) paths() iter.Seq[string] {
	return func(yield func(string) bool) {
		split := func(name string) bool {
			for path := range strings.SplitSeq(strings.TrimSuffix(name, "?"), "|") {
				if !yield(path) {
					return false
				}
			}
			return true
		}
		list := func(fields []Field) bool {
			return !slices.ContainsFunc(fields, func(f Field) bool { return !split(f.Name) })
		}
		if !list(f.JSON) || f.By != "" && !split(f.By) {
			return
		}
		for _, p := range f.Prices {
			if !list(p.Fields) {
				return
			}
		}
	}
}

func checkFields(fields []Field) error {
	switch {
	case len(fields) == 0:
		return fault.Invalid("", "must have at least one field, as in {usage.total_tokens: 1}")
	case len(fields) > MaxFields:
		return fault.Invalid("", "must have at most %d fields", MaxFields)
	}
	var problems []error
	for i, f := range fields {
		_, _, err := parseField(f.Name)
		switch {
		case err != nil:
		case slices.ContainsFunc(fields[:i], func(o Field) bool { return o.Name == f.Name }):
			err = fault.Invalid("", "is there twice")
		case f.Weight < -MaxWeight || f.Weight > MaxWeight:
			err = fault.Invalid("", badWeight)
		}
		problems = append(problems, fault.Prefixed(shown(f.Name), err))
	}
	return fault.Join(problems...)
}

// shown returns a name as it stands in the path of an invalid field.
func shown(name string) string {
	if len(name) > MaxField {
		return strings.ToValidUTF8(name[:MaxField], "") + "…"
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}

func (r *Rule) textLength() int {
	n := len(r.Meter) + len(r.From.Header) + len(r.From.By)
	add := func(fields []Field) {
		for _, f := range fields {
			n += len(f.Name)
		}
	}
	add(r.From.JSON)
	for _, p := range r.From.Prices {
		n += len(p.Value)
		add(p.Fields)
	}
	return n
}

// parseField parses a field: whole paths that stand for one another, each as its segments. The error is a validation
// error without a field.
func parseField(name string) (paths [][]string, optional bool, err error) {
	text, optional := strings.CutSuffix(name, "?")
	switch {
	case text == "":
		return nil, false, fault.Invalid("", "must be the path of a field, such as usage.total_tokens")
	case len(name) > MaxField:
		return nil, false, fault.Invalid("", "must have at most %d bytes", MaxField)
	case strings.Contains(text, document.EnvMark):
		return nil, false, fault.Invalid("", envForbidden)
	case !isText(text):
		return nil, false, fault.Invalid("", "must have neither control characters nor invalid UTF-8")
	case strings.Contains(text, "?"):
		return nil, false, fault.Invalid("", "may have ? only at its end, after all paths: then an absent field is 0")
	}
	if strings.Count(text, "|") >= MaxPaths {
		return nil, false, fault.Invalid("", "must have at most %d paths", MaxPaths)
	}
	for path := range strings.SplitSeq(text, "|") {
		segments := strings.Split(path, ".")
		if len(segments) > maxDepth {
			return nil, false, fault.Invalid("", "must have at most %d segments", maxDepth)
		}
		for _, s := range segments {
			switch {
			case s == "":
				return nil, false, fault.Invalid("", "has an empty segment: write whole paths, with single dots in them and | between them, as in usage.input|usage.prompt")
			case strings.TrimSpace(s) != s:
				return nil, false, fault.Invalid("", "has a space around a segment: remove it")
			}
		}
		paths = append(paths, segments)
	}
	return paths, optional, nil
}
