package adminapi

import (
	"net/http"
	"slices"
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

// etagBeside returns the ETag of a record that also has detail, a word that is not its own and that an If-Match does not
// compare.
func etagBeside(version int64, detail string) string {
	return `"` + strconv.FormatInt(version, 10) + "-" + detail + `"`
}

// sameVersion reports whether a tag is an ETag of a record with the version.
func sameVersion(tag string, version int64) bool {
	own, _, beside := strings.Cut(tag, "-")
	if beside {
		own += `"`
	}
	return own == etag(version)
}

// parseMatch parses the values of If-Match (RFC 9110, section 13.1.1): "*" or a
// list of entity tags. A weak tag matches nothing. The condition is nil if there
// are no values. A syntax error is a 400.
func parseMatch(values []string) (control.Match, error) {
	if len(values) == 0 {
		return nil, nil
	}
	tags, valid := parseTags(values)
	if !valid {
		return nil, &fault.Error{Code: fault.InvalidRequest, Field: "If-Match", Message: `must be * or a list of ETags, each in double quotes, as in "3"`}
	}
	return func(version int64) bool {
		return slices.ContainsFunc(tags, func(tag string) bool { return tag == "*" || sameVersion(tag, version) })
	}, nil
}

// notModified reports whether the response to a GET is one that the client has: If-None-Match lists its
// ETag (RFC 9110, section 13.1.2; the comparison is weak). A malformed If-None-Match is ignored.
func (c *call) notModified(res *response) bool {
	tag := res.header["ETag"]
	if tag == "" || c.op.hasState || res.status != http.StatusOK || c.request.Method != http.MethodGet && c.request.Method != http.MethodHead {
		return false
	}
	tags, valid := parseTags(c.request.Header.Values("If-None-Match"))
	return valid && slices.ContainsFunc(tags, func(t string) bool { return t == "*" || strings.TrimPrefix(t, "W/") == tag })
}

// parseTags parses "*", or a list of entity tags, each as it is written. valid is false for anything else.
func parseTags(values []string) (tags []string, valid bool) {
	rest := strings.TrimSpace(strings.Join(values, ","))
	if rest == "*" {
		return []string{"*"}, true
	}
	for {
		rest = strings.TrimLeft(rest, " \t,")
		if rest == "" {
			return tags, len(tags) > 0
		}
		body, weak := strings.CutPrefix(rest, "W/")
		if !strings.HasPrefix(body, `"`) {
			return nil, false
		}
		end := strings.IndexByte(body[1:], '"')
		if end < 0 {
			return nil, false
		}
		tag := body[:end+2]
		rest = strings.TrimLeft(body[end+2:], " \t")
		if rest != "" && rest[0] != ',' {
			return nil, false
		}
		if weak {
			tag = "W/" + tag
		}
		tags = append(tags, tag)
	}
}
