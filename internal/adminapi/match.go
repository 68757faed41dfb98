package adminapi

import (
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

// withETag is the answer with a mutable record and its ETag, the record's version.
func withETag(record any, version int64) response {
	return ok(record).with("ETag", etag(version))
}

func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// parseMatch reads If-Match (RFC 9110, 13.1.1): "*" or a list of entity tags.
// A weak tag matches nothing. Without the field the condition is nil; what
// cannot be read is a 400.
func parseMatch(fields []string) (control.Match, error) {
	if len(fields) == 0 {
		return nil, nil
	}
	rest := strings.TrimSpace(strings.Join(fields, ","))
	if rest == "*" {
		return func(int64) bool { return true }, nil
	}
	bad := &fault.Error{Code: fault.InvalidRequest, Field: "If-Match", Message: `must be * or a list of ETags, each in double quotes, as in "3"`}
	tags := map[string]bool{}
	for n := 0; ; n++ {
		rest = strings.TrimLeft(rest, " \t,")
		if rest == "" {
			if n == 0 {
				return nil, bad
			}
			return func(version int64) bool { return tags[etag(version)] }, nil
		}
		body, weak := strings.CutPrefix(rest, "W/")
		if !strings.HasPrefix(body, `"`) {
			return nil, bad
		}
		end := strings.IndexByte(body[1:], '"')
		if end < 0 {
			return nil, bad
		}
		if !weak {
			tags[body[:end+2]] = true
		}
		rest = strings.TrimLeft(body[end+2:], " \t")
		if rest != "" && rest[0] != ',' {
			return nil, bad
		}
	}
}
