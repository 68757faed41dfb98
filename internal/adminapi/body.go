package adminapi

import (
	"bytes"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/fault"
)

// readBody is the checks 413 and 415. Bodies of GET and DELETE have no meaning
// and are not read.
func (c *call) readBody() error {
	if m := c.op.method; m == http.MethodGet || m == http.MethodDelete {
		return nil
	}
	most := c.op.maxBody
	if most == 0 {
		most = maxBody
	}
	tooLarge := fault.New(fault.BodyTooLarge, "the body may have at most %d bytes", most)
	if c.request.ContentLength > most {
		return tooLarge
	}
	content, err := readAll(c.request, most)
	if err != nil {
		return &fault.Error{Code: fault.InvalidRequest, Message: "the body ended before its time", Err: err}
	}
	if int64(len(content)) > most {
		return tooLarge
	}
	c.body = content
	if len(content) == 0 {
		return nil // there is nothing to have a type
	}
	return c.checkMediaType()
}

// readAll reads the body, or one byte more than most of it. A body that tells
// its length, which is at most that, is read into a slice of just that size.
func readAll(r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength < 0 {
		return io.ReadAll(io.LimitReader(r.Body, most+1))
	}
	content := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, content)
	return content, err
}

// checkMediaType is the check 415. A body without a type is refused: guessing
// would make the same bytes mean different things to different callers.
func (c *call) checkMediaType() error {
	takes := []string{jsonType}
	also := takes
	if c.op.document {
		takes = []string{yamlType, jsonType, textType}
		also = append(slices.Clone(takes), "application/x-yaml", "text/yaml", "text/x-yaml", "application/openapi+json", "application/openapi+yaml",
			"application/vnd.oai.openapi", "application/vnd.oai.openapi+json")
	}
	refusal := fault.New(fault.UnsupportedMediaType, "send the body with Content-Type: %s", joinOr(takes))
	if e := c.request.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return fault.New(fault.UnsupportedMediaType, "send the body without Content-Encoding")
	}
	fields := c.request.Header.Values("Content-Type")
	if len(fields) != 1 {
		return refusal
	}
	mediaType, params, err := mime.ParseMediaType(fields[0])
	if err != nil || !slices.Contains(also, mediaType) {
		return refusal
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
		return fault.New(fault.UnsupportedMediaType, "send the body in UTF-8")
	}
	return nil
}

// readSyntax is the check 400: the query, If-Match, Idempotency-Key and a JSON
// body can be read at all.
func (c *call) readSyntax() (err error) {
	if c.query, err = url.ParseQuery(c.request.URL.RawQuery); err != nil {
		return fault.New(fault.InvalidRequest, "the query cannot be read: percent-encode it")
	}
	if c.op.ifMatch {
		if c.match, err = parseMatch(c.request.Header.Values("If-Match")); err != nil {
			return err
		}
	}
	if c.op.method == http.MethodPost {
		if err := checkIdempotencyKey(c.request.Header.Values("Idempotency-Key")); err != nil {
			return err
		}
	}
	switch {
	case c.op.method == http.MethodGet, c.op.method == http.MethodDelete, c.op.document:
		return nil
	case (c.op.body == nil || c.op.bodyOptional) && len(c.body) == 0:
		return nil
	default:
		return checkSyntax(c.body)
	}
}

// checkQuery is the part of the check 422 that concerns the query.
func (c *call) checkQuery() error {
	known := make([]string, len(c.op.query))
	for i, p := range c.op.query {
		known[i] = p.name
	}
	for _, name := range slices.Sorted(maps.Keys(c.query)) {
		switch {
		case slices.Contains(known, name):
		case len(known) == 0:
			return fault.Invalid(name, "is no parameter of this call, which takes none: leave it out")
		default:
			return fault.Invalid(name, "is no parameter of this call: it takes %s", join(known, " and "))
		}
	}
	for _, p := range c.op.query {
		values, given := c.query[p.name]
		switch {
		case !given:
		case len(values) > 1:
			return fault.Invalid(p.name, "is there more than once: give it one time")
		case p.check != nil:
			if err := p.check(values[0]); err != nil {
				return err
			}
		case values[0] == "" || !utf8.ValidString(values[0]):
			return fault.Invalid(p.name, "must be some text: give it a value, or leave it out")
		}
	}
	if c.op.body == nil && !c.op.document && len(c.body) > 0 {
		return c.checkEmpty()
	}
	return nil
}

// decode reads the JSON body into v, a pointer to the operation's body type,
// after checking it against that type's schema.
func (c *call) decode(v any) error {
	if c.op.bodyOptional && len(c.body) == 0 {
		return nil
	}
	if err := checkBody(c.api.schemas, c.api.bodies[c.op.id], c.body); err != nil {
		return err
	}
	return unmarshal(c.body, v)
}

// checkEmpty refuses a body of a call that takes none, unless it says nothing.
func (c *call) checkEmpty() error {
	var members map[string]any
	if err := unmarshal(c.body, &members); err != nil || members == nil {
		return fault.New(fault.ValidationFailed, "this call takes no body: leave it out")
	}
	if names := slices.Sorted(maps.Keys(members)); len(names) > 0 {
		return fault.Invalid(names[0], "this call takes no body: leave it out")
	}
	return nil
}

// lineAndColumn tells where the byte at offset stands, both from 1.
func lineAndColumn(content []byte, offset int64) (line, column int) {
	before := content[:min(int(offset), len(content))]
	line = bytes.Count(before, []byte("\n")) + 1
	return line, utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
}
