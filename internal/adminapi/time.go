package adminapi

import (
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/fault"
)

// timeRangeParams returns the query parameters since and until of a list. what is what it lists, in the plural.
func timeRangeParams(what string) []queryParam {
	return []queryParam{
		timeParam("since", "Only "+what+" at or after this time: an RFC 3339 time, or a date, which means midnight UTC."),
		timeParam("until", "Only "+what+" before this time, in the same form as since."),
	}
}

// timeParam returns a query parameter that takes a time.
func timeParam(name, doc string) queryParam {
	return queryParam{
		name: name, doc: doc, schema: &huma.Schema{Type: huma.TypeString}, example: "2026-03-01T12:00:00Z",
		check: func(v string) error {
			if _, err := parseTime(v); err != nil {
				return invalidTime(name)
			}
			return nil
		},
	}
}

func invalidTime(field string) error {
	return fault.Invalid(field, "must be an RFC 3339 time, as in 2026-03-01T12:00:00Z, or a date, as in 2026-03-01")
}

// parseTime parses an RFC 3339 time, or a date as midnight UTC. It returns the zero time, which
// stands for no time, only with an error.
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

// timeRange returns since and until of the query. A zero time means that the parameter was not
// given, or is invalid, which checkQuery reports. It is an error if since is not before until.
func (c *call) timeRange() (since, until time.Time, err error) {
	since, until = c.queryTime("since"), c.queryTime("until")
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return since, until, fault.Invalid("since", "must be before until")
	}
	return since, until, nil
}

func (c *call) queryTime(name string) time.Time {
	t, err := parseTime(c.query.Get(name))
	if err != nil {
		return time.Time{}
	}
	return t
}

// cursorBinding returns the given values of params, other than their defaults, in the form in which page
// binds a cursor to them.
func (c *call) cursorBinding(params []queryParam) string {
	bound := url.Values{}
	for _, p := range params {
		if v := c.query.Get(p.name); v != "" && v != p.schema.Default {
			bound.Set(p.name, v)
		}
	}
	return bound.Encode()
}
