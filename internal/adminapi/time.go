package adminapi

import (
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/fault"
)

// timeRangeParams are the parameters since and until of a list; what tells what their
// times are of.
func timeRangeParams(what string) []queryParam {
	return []queryParam{
		timeParam("since", "Only "+what+" at or after this time: RFC 3339, or a date, which is its midnight in UTC."),
		timeParam("until", "Only "+what+" before this time: as since."),
	}
}

// timeParam is a parameter that takes a time.
func timeParam(name, doc string) queryParam {
	return queryParam{
		name: name, doc: doc, schema: &huma.Schema{Type: huma.TypeString}, example: "2026-03-01T12:00:00Z",
		check: func(v string) error {
			if _, err := parseTime(v); err != nil {
				return fault.Invalid(name, "must be a time, as in 2026-03-01T12:00:00Z, or a date, as in 2026-03-01")
			}
			return nil
		},
	}
}

// parseTime reads an RFC 3339 time, or a date as its midnight in UTC. It never
// returns the zero time, which stands for one that is not there.
func parseTime(v string) (time.Time, error) {
	t, err := time.Parse(time.DateOnly, v)
	if err != nil {
		t, err = time.Parse(time.RFC3339, v)
	}
	if t.IsZero() {
		t = t.Add(time.Microsecond)
	}
	return t.UTC(), err
}

// timeRange returns since and until of a query that checkQuery has passed; a zero
// time is one that is not there. It fails if they leave nothing between them.
func (c *call) timeRange() (since, until time.Time, err error) {
	if v := c.query.Get("since"); v != "" {
		since, _ = parseTime(v) // checked by timeParam
	}
	if v := c.query.Get("until"); v != "" {
		until, _ = parseTime(v)
	}
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return since, until, fault.Invalid("since", "must be before until")
	}
	return since, until, nil
}

// cursorBinding makes a text of the parameters that are there, for a cursor to be bound
// to.
func (c *call) cursorBinding(params []queryParam) string {
	bound := url.Values{}
	for _, p := range params {
		if v := c.query.Get(p.name); v != "" {
			bound.Set(p.name, v)
		}
	}
	return bound.Encode()
}
