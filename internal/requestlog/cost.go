package requestlog

import (
	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/cost"
)

// ExplainCost says what a request was charged of a meter and why, as in "1,204 tokens: prompt_tokens 1,000 × 1,
// completion_tokens 51 × 4; reserved 2,000".
func ExplainCost(c *accesslog.Cost) string {
	b := append(append(cost.AppendUnits(nil, c.Units), ' '), c.Meter...)
	separator := ": "
	if c.Read != "" {
		b = append(append(b, separator...), c.Read...)
		separator = "; "
	}
	if c.Unknown != "" {
		b = append(append(append(b, separator...), "unknown, because "...), whyUnknown(c.Unknown)...)
		separator = "; "
	}
	return string(cost.AppendUnits(append(append(b, separator...), "reserved "...), c.Reserved))
}

// whyUnknown returns the text of a cost.Reason in words.
func whyUnknown(reason string) string {
	switch cost.ReasonOf(reason) {
	case cost.Incomplete:
		return "the exchange did not complete"
	case cost.Encoding:
		return "the response has a Content-Encoding other than gzip, or its gzip is damaged"
	case cost.TooLong:
		return "a value is longer than 1 KiB, or the body than 16 MiB"
	case cost.Invalid:
		return "the body is not valid JSON, or ends within a value"
	case cost.NotANumber:
		return "the field or header is not a number"
	case cost.Negative:
		return "the field or header is negative"
	case cost.TooLarge:
		return string(cost.AppendUnits([]byte("the number is above "), cost.MaxUnits))
	case cost.Missing:
		return "the response does not have the field or header, or its Content-Type is not one that is read"
	}
	return reason
}
