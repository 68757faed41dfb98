package gateway

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// Bounds of what routes do with their requests (edge.md, section 2).
const (
	MaxRespondBody      = 64 << 10 // bytes of the body of a respond
	MaxRedirectTo       = 4 << 10  // bytes of the to of a redirect
	MaxAllHandlingBytes = 4 << 20  // of the different ones of a gateway's routes, as JSON
)

// Handling says what a route does with its requests beside forwarding them as they came (edge.md, section 2). Nil does nothing
// else. Routes share it, so it must not be changed. The store and the API keep it as JSON, so the names are part of the stored
// form.
type Handling struct {
	// StripPrefix is the beginning of the route's path that is cut from the path of a forwarded request: as many segments as it
	// has. "" cuts nothing.
	StripPrefix string    `json:"strip_prefix,omitempty"`
	Redirect    *Redirect `json:"redirect,omitempty"`
	Respond     *Respond  `json:"respond,omitempty"`
	// AllowIPs and DenyIPs are the networks whose addresses may use the route, and may not.
	AllowIPs []string `json:"allow_ips,omitempty"`
	DenyIPs  []string `json:"deny_ips,omitempty"`
	// RequestHeaders and ResponseHeaders are the headers that are set and removed, beside those of the gateway.
	RequestHeaders  *HeaderRules `json:"request_headers,omitempty"`
	ResponseHeaders *HeaderRules `json:"response_headers,omitempty"`
	// Validate is the mode of the route in place of the gateway's; "" for that.
	Validate ValidateMode `json:"validate,omitempty"`
}

// Redirect is the redirect with which a route responds to its requests.
type Redirect struct {
	// To is the value of Location, as it is: a URL, or a path with an optional query.
	To     string `json:"to"`
	Status int64  `json:"status"` // 301, 302, 307 or 308
	// KeepPath appends the path of the request, as it came. KeepQuery appends its query without api_key.
	KeepPath  bool `json:"keep_path,omitempty"`
	KeepQuery bool `json:"keep_query,omitempty"`
}

// Respond is the response with which a route responds to its requests.
type Respond struct {
	Status      int64             `json:"status"`
	ContentType string            `json:"content_type,omitempty"` // "" for a response without one
	Body        string            `json:"body,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
}

// handlingField is a field of a route, with which a Handling says what is done.
type handlingField struct {
	name    string
	present func(h *Handling) bool
	value   func(h *Handling) any             // as the API shows it
	copyTo  func(to, from *Handling)          // copies the field
	check   func(h *Handling, p string) error // of a field that is present; p is the path of the route
	part    func(h *Handling) part
	doc     string // description in the schema of files

	mayBeEmpty bool // an empty value is as null; otherwise it is rejected
}

// handlingFields are the fields in the order of an export. Each surface is a loop over them.
func handlingFields() []handlingField {
	return []handlingField{{
		name:    "strip_prefix",
		present: func(h *Handling) bool { return h.StripPrefix != "" },
		value:   func(h *Handling) any { return h.StripPrefix },
		copyTo:  func(to, from *Handling) { to.StripPrefix = from.StripPrefix },
		check: func(h *Handling, path string) error {
			return fault.Prefixed("strip_prefix", checkStripPrefix(h.StripPrefix, path))
		},
		part: func(h *Handling) part {
			return textPart("strip_prefix", &h.StripPrefix, schema{"type": "string", "pattern": `^(/|.*\$\{env:)`, "maxLength": MaxTemplate, "examples": []any{"/api"}})
		},
		doc: "Beginning of the path that the upstream does not get: as many segments as it has are cut from the front of the request's path. The path of the route begins with it.",
	}, {
		name:    "redirect",
		present: func(h *Handling) bool { return h.Redirect != nil },
		value:   func(h *Handling) any { return h.Redirect },
		copyTo:  func(to, from *Handling) { to.Redirect = from.Redirect },
		check: func(h *Handling, _ string) error {
			err := h.Redirect.check()
			if h.Respond != nil {
				err = fault.Join(err, fault.Invalid("", "cannot be given with respond: a route has one of them"))
			}
			return fault.Prefixed("redirect", err)
		},
		part: func(h *Handling) part { return objectPart("redirect", &h.Redirect, (*Redirect).parts, "to", "status") },
		doc:  "Redirect with which the gateway responds to requests, in place of forwarding them. They are charged.",
	}, {
		name:    "respond",
		present: func(h *Handling) bool { return h.Respond != nil },
		value:   func(h *Handling) any { return h.Respond },
		copyTo:  func(to, from *Handling) { to.Respond = from.Respond },
		check:   func(h *Handling, _ string) error { return fault.Prefixed("respond", h.Respond.check()) },
		part:    func(h *Handling) part { return objectPart("respond", &h.Respond, (*Respond).parts, "status") },
		doc:     "Response that the gateway gives to requests, in place of forwarding them. They are charged.",
	}, allowIPsField(), denyIPsField(), requestHeadersField(), responseHeadersField(), validateField()}
}

// HandlingFields returns the names of the fields of a route that are its Handling.
func HandlingFields() []string {
	rows := handlingFields()
	names := make([]string, len(rows))
	for i := range rows {
		names[i] = rows[i].name
	}
	return names
}

// orNone returns h, or one that does nothing for nil.
func (h *Handling) orNone() *Handling {
	if h == nil {
		return &Handling{}
	}
	return h
}

// Stored returns h in the stored form: nil if it does nothing.
func (h *Handling) Stored() *Handling {
	if h == nil || reflect.DeepEqual(*h, Handling{}) {
		return nil
	}
	return h
}

// With returns h with a field as it is in from.
func (h *Handling) With(field string, from *Handling) *Handling {
	changed := *h.orNone()
	for _, f := range handlingFields() {
		if f.name == field {
			f.copyTo(&changed, from.orNone())
		}
	}
	return changed.Stored()
}

// Value returns a field as the API shows it, or nil if it is absent.
func (h *Handling) Value(field string) any {
	if h == nil {
		return nil
	}
	for _, f := range handlingFields() {
		if f.name == field && f.present(h) {
			return f.value(h)
		}
	}
	return nil
}

// Equal reports whether both do the same.
func (h *Handling) Equal(o *Handling) bool {
	return h == o || h != nil && o != nil && reflect.DeepEqual(*h, *o)
}

// Differs returns the fields in which h and o differ.
func (h *Handling) Differs(o *Handling) (fields []string) {
	if h.Equal(o) {
		return nil
	}
	for _, name := range HandlingFields() {
		if !reflect.DeepEqual(h.Value(name), o.Value(name)) {
			fields = append(fields, name)
		}
	}
	return fields
}

// Responds reports whether the gateway itself responds to the requests.
func (h *Handling) Responds() bool { return h != nil && (h.Redirect != nil || h.Respond != nil) }

// Check checks h for a route with the path. Errors are validation errors of the fields of the route.
func (h *Handling) Check(path string) error {
	if h == nil {
		return nil
	}
	var problems []error
	for _, f := range handlingFields() {
		if f.present(h) {
			problems = append(problems, f.check(h, path))
		}
	}
	return fault.Join(problems...)
}

// AppendJSON appends h in the stored form.
func (h *Handling) AppendJSON(b []byte) []byte {
	text, err := json.Marshal(h)
	if err != nil {
		panic(err) // it consists of texts and numbers
	}
	return append(b, text...)
}

// checkStripPrefix checks a strip_prefix of a route with the path. Errors have no field.
func checkStripPrefix(prefix, path string) error {
	switch {
	case prefix[0] != '/' || prefix == "/":
		return fault.Invalid("", "must be one or more segments, as in /api")
	case strings.HasSuffix(prefix, "/"):
		return fault.Invalid("", "must not end in a slash: write %s", strings.TrimRight(prefix, "/"))
	case strings.HasSuffix(prefix, "/*"):
		return fault.Invalid("", "must not end in /*: write %s", strings.TrimSuffix(prefix, "/*"))
	case path != prefix && !strings.HasPrefix(path, prefix+"/"):
		return fault.Invalid("", "must be the beginning of the path %s, in whole segments and written in the same way", path)
	}
	return nil
}

// check checks a redirect. Errors are validation errors of its fields.
func (r *Redirect) check() error {
	var badStatus, badTo error
	switch r.Status {
	case 301, 302, 307, 308:
	default:
		badStatus = fault.Invalid("status", "must be 301, 302, 307 or 308")
	}
	switch authority, rest, isURL := splitTarget(r.To); {
	case len(r.To) > MaxRedirectTo:
		badTo = fault.Invalid("to", "must have at most %d bytes", MaxRedirectTo)
	case !isURL && (r.To == "" || r.To[0] != '/' || strings.HasPrefix(r.To, "//")), isURL && authority == "":
		badTo = fault.Invalid("to", "must be a URL such as https://example.com, or a path such as /new")
	case !isURLText(r.To):
		badTo = fault.Invalid("to", "has characters that no URL has: percent-encode all but printable ASCII, and spaces, quotes, backslashes and any of < > ^ ` { | }. It has no variables")
	case isURL && checkAuthority(authority) != "":
		badTo = fault.Invalid("to", "%s", checkAuthority(authority))
	case r.KeepPath && (!isURL || rest != ""):
		badTo = fault.Invalid("to", "must have neither a path nor a query with keep_path, which appends those of the request: write only a scheme and a host, as in https://example.com")
	case r.KeepQuery && strings.ContainsAny(rest, "?#"):
		badTo = fault.Invalid("to", "must have neither a query nor a fragment with keep_query, which appends the query of the request")
	}
	return fault.Join(badTo, badStatus)
}

// splitTarget splits a URL behind its authority. isURL is false for a path, which is then the rest.
func splitTarget(s string) (authority, rest string, isURL bool) {
	for _, scheme := range [...]string{"http://", "https://"} {
		if len(s) >= len(scheme) && strings.EqualFold(s[:len(scheme)], scheme) {
			s = s[len(scheme):]
			if i := strings.IndexAny(s, "/?#"); i >= 0 {
				return s[:i], s[i:], true
			}
			return s, "", true
		}
	}
	return "", s, false
}

// checkAuthority says what is wrong with the authority of a URL, or returns "".
func checkAuthority(s string) string {
	host := s
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		port := s[i+1:]
		host = s[:i]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Sprintf("has the port %.10q, which must be a number from 1 to 65535", port)
		}
	}
	if strings.Contains(s, "@") {
		return "must not have a user name or password"
	}
	if host == "" || strings.ContainsAny(host, "%$&'()*+,;=!~") || !isBracketed(host) && strings.ContainsAny(host, "[:]") {
		return "must have a host name or an address, as in https://example.com"
	}
	return ""
}

// isBracketed reports whether a host is in brackets, as an IPv6 address is.
func isBracketed(host string) bool {
	return host[0] == '[' && strings.IndexByte(host, ']') == len(host)-1 && strings.LastIndexByte(host, '[') == 0
}

// isURLText reports whether s has only bytes that a URL may have (RFC 3986, 2).
func isURLText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			return false
		}
	}
	return true
}

// check checks a response. Errors are validation errors of its fields.
func (r *Respond) check() error {
	var problems []error
	if r.Status < 200 || r.Status > 599 {
		problems = append(problems, fault.Invalid("status", "must be between 200 and 599"))
	}
	if hasNoContent(r.Status) && r.Body != "" {
		problems = append(problems, fault.Invalid("body", "must be absent: a response with the status %d has no body", r.Status))
	}
	if len(r.Body) > MaxRespondBody {
		problems = append(problems, fault.Invalid("body", "must have at most %d bytes, not %d", MaxRespondBody, len(r.Body)))
	}
	switch {
	case r.ContentType != "" && r.Body == "":
		problems = append(problems, fault.Invalid("content_type", "needs a body"))
	case r.ContentType == "" && r.Body != "":
		problems = append(problems, fault.Invalid("content_type", "is missing: say what the body is, as in text/plain or application/json"))
	case r.ContentType != "" && (!isASCIIValue(r.ContentType) || !strings.Contains(r.ContentType, "/") || len(r.ContentType) > maxHeaderName):
		problems = append(problems, fault.Invalid("content_type", "must be a media type of at most %d characters, such as text/plain or application/json", maxHeaderName))
	}
	problems = append(problems, checkRuleHeaders("headers", r.Headers, map[string]bool{}))
	for _, name := range sortedNames(r.Headers) {
		if foldHeader(name) == "content-type" {
			problems = append(problems, fault.Invalid("headers."+name, "is set by content_type"))
		}
	}
	return fault.Join(problems...)
}

// hasNoContent reports whether a response with the status has no body.
func hasNoContent(status int64) bool { return status == 204 || status == 205 || status == 304 }

// handlingSet is the different handlings of a gateway's routes. The zero value is empty.
type handlingSet struct {
	texts map[string]struct{}
	known map[*Handling]struct{} // those of texts that routes share
	bytes int
}

// add adds a handling, and says which bound of route tables it exceeds, or returns "".
func (s *handlingSet) add(h *Handling) string {
	if h == nil {
		return ""
	}
	if _, known := s.known[h]; known {
		return ""
	}
	if s.texts == nil {
		s.texts, s.known = map[string]struct{}{}, map[*Handling]struct{}{}
	}
	s.known[h] = struct{}{}
	text := string(h.AppendJSON(nil))
	if _, known := s.texts[text]; known {
		return ""
	}
	s.texts[text] = struct{}{}
	if s.bytes += len(text); s.bytes > MaxAllHandlingBytes {
		return largeHandling
	}
	return ""
}
