package cost

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// YAML returns valid rules as a block sequence of YAML, each line indented by so many spaces, without what is the default.
// Read turns it into equal rules, in the same order.
func (rules Rules) YAML(indent int) string {
	var b strings.Builder
	margin := strings.Repeat(" ", indent)
	for i := range rules {
		r, bullet := &rules[i], "- "
		line := func(text string) {
			b.WriteString(margin + bullet + text + "\n")
			bullet = "  "
		}
		line("meter: " + document.Scalar(r.Meter))
		if r.Reserve != r.defaultReserve() {
			line("reserve: " + whole(r.Reserve))
		}
		if r.From.Source != FromRequest || r.Max != r.From.Price {
			line("max: " + whole(r.Max))
		}
		switch f := &r.From; f.Source {
		case FromRequest:
			line("from: {request: " + whole(f.Price) + "}")
		case FromHeader:
			expose := ""
			if f.Expose {
				expose = ", expose: true"
			}
			line("from: {header: " + flowName(f.Header) + expose + "}")
		case FromJSON:
			line("from:")
			line("  json: " + flowFields(f.JSON))
			if f.By == "" {
				break
			}
			line("  by: " + flowName(f.By))
			line("  prices:")
			for _, p := range f.Prices {
				line("    " + flowName(p.Value) + ": " + flowFields(p.Fields))
			}
		}
		switch u := &r.Unknown; u.Fallback {
		case UnknownReserve:
			line("unknown: reserve")
		case UnknownBytesIn:
			line("unknown: {bytes_in: " + u.Weight.String() + "}")
		case UnknownBytesOut:
			line("unknown: {bytes_out: " + u.Weight.String() + "}")
		}
	}
	return b.String()
}

// defaultReserve returns the reserve of a rule that gives none.
func (r *Rule) defaultReserve() int64 {
	if r.From.Source == FromRequest {
		return r.From.Price
	}
	return 1
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

func flowFields(fields []Field) string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = flowName(f.Name) + ": " + f.Weight.String()
	}
	return "{" + strings.Join(list, ", ") + "}"
}

var plainName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// flowName returns a name in a form that is one string in a flow mapping of YAML.
func flowName(s string) string {
	if plainName.MatchString(s) {
		return document.Scalar(s)
	}
	return document.Quoted(s)
}
