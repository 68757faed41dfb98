package rows

import (
	"time"

	"github.com/keygate/keygate/internal/id"
)

// Span is the range of identifiers that a page and a filter by time allow. It works because the
// identifiers of id.NewAt contain the record's time.
type Span struct{ From, Below string }

// SpanOf returns the Span of a page that begins below an identifier.
func SpanOf(k id.Kind, since, until time.Time, below string) Span {
	s := Span{Below: below}
	if !since.IsZero() {
		s.From = id.Lowest(k, since)
	}
	if !until.IsZero() {
		s.Below = min(s.Below, id.Lowest(k, until))
	}
	return s
}

// requestMargin is the maximum difference between a request's time and the time in its identifier.
const requestMargin = time.Minute

// requestSpan returns a Span that has all requests of a time.
func requestSpan(since, until time.Time, below string) Span {
	if !since.IsZero() {
		since = since.Add(-requestMargin)
	}
	if !until.IsZero() {
		until = until.Add(requestMargin)
	}
	return SpanOf(id.Request, since, until, below)
}
