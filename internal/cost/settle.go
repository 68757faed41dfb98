package cost

import (
	"strconv"

	"github.com/keygate/keygate/internal/ratelimit"
)

// Reason says why a cost is unknown. Its texts are values of the label "reason" of keygate_cost_unknown_total.
type Reason uint8

// The reasons. None is that of a known cost.
const (
	None       Reason = iota
	Incomplete        // the exchange did not complete
	Encoding          // the body has a Content-Encoding other than gzip, or its gzip is damaged
	TooLong           // a value or the body is longer than what is read
	Invalid           // the body is not valid JSON, or ends within a value
	NotANumber        // the field or the header has something other than a number
	Negative          // the field or the header has a negative number
	TooLarge          // the number, or the sum, is above MaxUnits
	Missing           // there is no such field or header
	reasons
)

// Reasons returns every reason but None.
func Reasons() []Reason {
	list := make([]Reason, 0, reasons-1)
	for r := None + 1; r < reasons; r++ {
		list = append(list, r)
	}
	return list
}

// ReasonOf returns the reason with the name; None if there is no such reason.
func ReasonOf(name string) Reason {
	for r := None + 1; r < reasons; r++ {
		if r.String() == name {
			return r
		}
	}
	return None
}

// String returns the name of r, which is "" for None.
func (r Reason) String() string {
	switch r {
	case None:
		return ""
	case Incomplete:
		return "incomplete"
	case Encoding:
		return "encoding"
	case TooLong:
		return "too_long"
	case Invalid:
		return "invalid"
	case NotANumber:
		return "not_a_number"
	case Negative:
		return "negative"
	case TooLarge:
		return "too_large"
	case Missing:
		return "missing"
	}
	return "Reason(" + strconv.Itoa(int(r)) + ")"
}

// Figure is what a response says of its cost. The zero value is that of a response that says nothing.
type Figure struct {
	Units  int64  // what was read, rounded up; 0 to MaxUnits
	Read   bool   // a header, or one of the fields, was there
	Known  bool   // Units is the whole figure
	Reason Reason // why it is not known; None stands for Missing
}

// HeaderFigure returns the figure of a header or trailer with the value.
func HeaderFigure(value string) Figure {
	n, reason := parseNumber(trimSpace(value))
	switch {
	case len(value) > maxNumberLength:
		return Figure{Read: true, Reason: TooLong}
	case reason == TooLarge:
		return Figure{Read: true, Reason: reason, Units: MaxUnits}
	case reason != None:
		return Figure{Read: true, Reason: reason}
	}
	return Figure{Read: true, Known: true, Units: n.roundUp()}
}

// End is the end of an exchange of which at least one byte was written to an upstream.
type End struct {
	Status   int   // of the upstream's final response; 0 if there is none
	Head     bool  // the request has the method HEAD
	Whole    bool  // the response was passed on to its end, trailers included
	BytesIn  int64 // bytes of the request's body, as the access record counts them
	BytesOut int64 // bytes of the response's body, as the access record counts them
}

// Settle returns what a request costs: 0 to r.Max units. The reason is None if that is known; otherwise units are what is
// charged for an unknown cost. A rule with FromRequest needs no figure.
//
// A response to HEAD, and one with status 204 or 304, costs 0 if it says nothing, since it has no body. So does an error
// (4xx or 5xx) that says nothing, except of the meter requests, which is the reserve then: also one that was cut, or
// whose body cannot be read.
func (r *Rule) Settle(e End, f Figure) (units int64, reason Reason) {
	if r.From.Source == FromRequest {
		return r.bounded(r.From.Price), None
	}
	if !f.Read {
		switch {
		case e.Status != 0 && e.Head || e.Status == 204 || e.Status == 304:
			return 0, None
		case e.Status >= 400 && r.Meter == ratelimit.Requests:
			return r.Reserve, None
		case e.Status >= 400:
			return 0, None
		}
	}
	switch {
	case !e.Whole:
		reason = Incomplete
	case f.Known:
		return r.bounded(f.Units), None
	case f.Reason == None:
		reason = Missing
	default:
		reason = f.Reason
	}
	return r.bounded(max(f.Units, r.fallback(e))), reason
}

func (r *Rule) fallback(e End) int64 {
	switch r.Unknown.Fallback {
	case UnknownReserve:
		return r.Reserve
	case UnknownBytesIn:
		return r.Unknown.Weight.times(e.BytesIn)
	case UnknownBytesOut:
		return r.Unknown.Weight.times(e.BytesOut)
	default:
		return r.Max
	}
}

func (r *Rule) bounded(units int64) int64 { return min(units, r.Max) }
