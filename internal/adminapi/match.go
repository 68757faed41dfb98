package adminapi

import (
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

// withETag returns a response with a mutable record and its ETag, which is the
// record's version.
func withETag(record any, version int64) response {
	return ok(record).with("ETag", etag(version))
}

func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// parseMatch parses the values of If-Match (RFC 9110, section 13.1.1): "*" or a
// list of entity tags. A weak tag matches nothing. The condition is nil if there
// are no values. A syntax error is a 400.
func parseMatch(values []string) (control.Match, error) {
	if len(values) == 0 {
		return nil, nil
	}
	rest := strings.TrimSpace(strings.Join(values, ","))
	if rest == "*" {
		return func(int64) bool { return true }, nil
	}
	invalid := &fault.Error{Code: fault.InvalidRequest, Field: "If-Match", Message: `must be * or a list of ETags, each in double quotes, as in "3"`}
	tags := map[string]bool{}
	for n := 0; ; n++ {
		rest = strings.TrimLeft(rest, " \t,")
		if rest == "" {
			if n == 0 {
				return nil, invalid
			}
			return func(version int64) bool { return tags[etag(version)] }, nil
		}
		body, weak := strings.CutPrefix(rest, "W/")
		if !strings.HasPrefix(body, `"`) {
			return nil, invalid
		}
		end := strings.IndexByte(body[1:], '"')
		if end < 0 {
			return nil, invalid
		}
		if !weak {
			tags[body[:end+2]] = true
		}
		rest = strings.TrimLeft(body[end+2:], " \t")
		if rest != "" && rest[0] != ',' {
			return nil, invalid
		}
	}
}
