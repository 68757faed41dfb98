package adminapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// readBody reads the body and performs the 413 and 415 checks. It does not read the
// body of a GET or DELETE, which has no meaning. A document is read only when the call has a slot
// for it, so that no document waits in memory.
func (c *call) readBody() error {
	if m := c.op.method; m == http.MethodGet || m == http.MethodDelete {
		return nil
	}
	if c.op.hook { // admitHook has read it
		if len(c.body) == 0 {
			return nil
		}
		return c.checkHookType()
	}
	most := cmp.Or(c.op.maxBody, maxBody)
	tooLarge := fault.New(fault.BodyTooLarge, "the request body must not exceed %d bytes", most)
	if c.request.ContentLength > most {
		return tooLarge
	}
	if c.op.document || c.op.maxBody > maxBody && !(0 <= c.request.ContentLength && c.request.ContentLength <= maxBody) {
		if err := c.takeDocumentSlot(); err != nil {
			return err
		}
	}
	body := io.Reader(c.request.Body)
	if c.held.document != nil {
		body = &pacedBody{call: c, body: body}
	}
	content, err := readAll(body, c.request.ContentLength, most)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fault.New(fault.InvalidRequest, "the request body is incomplete: it arrived too slowly")
	}
	if err != nil {
		return &fault.Error{Code: fault.InvalidRequest, Message: "the request body is incomplete: the connection ended before all of it arrived", Err: err}
	}
	if int64(len(content)) > most {
		return tooLarge
	}
	c.body = content
	if !c.op.document { // a document is kept byte for byte
		c.body = document.TrimMark(content)
	}
	if len(c.body) == 0 {
		return nil // an empty body needs no Content-Type
	}
	return c.checkMediaType()
}

// readAll reads the body up to one byte more than most. length is the Content-Length, which the
// caller has checked, or -1 without one. The body is read into a slice of exactly that size.
func readAll(body io.Reader, length, most int64) ([]byte, error) {
	if length < 0 {
		return io.ReadAll(io.LimitReader(body, most+1))
	}
	content := make([]byte, length)
	_, err := io.ReadFull(body, content)
	return content, err
}

// checkMediaType performs the 415 check. A body without a Content-Type is refused,
// because the meaning of a body must not depend on a guess.
func (c *call) checkMediaType() error {
	documented := []string{jsonType}
	accepted := documented
	if c.op.document {
		documented = []string{yamlType, jsonType, textType}
		accepted = append(slices.Clone(documented), "application/x-yaml", "text/yaml", "text/x-yaml", "application/openapi+json", "application/openapi+yaml",
			"application/vnd.oai.openapi", "application/vnd.oai.openapi+json")
	}
	if c.op.oauth {
		documented = []string{formType, jsonType}
		accepted = documented
	}
	unsupported := fault.New(fault.UnsupportedMediaType, "the Content-Type header must be %s", joinOr(documented))
	if e := c.request.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return fault.New(fault.UnsupportedMediaType, "the Content-Encoding header is not supported: send the body uncompressed")
	}
	values := c.request.Header.Values("Content-Type")
	if len(values) != 1 {
		return unsupported
	}
	mediaType, params, err := mime.ParseMediaType(values[0])
	if err != nil || !slices.Contains(accepted, mediaType) {
		return unsupported
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
		return fault.New(fault.UnsupportedMediaType, "the charset must be utf-8")
	}
	if mediaType == formType {
		return c.readForm()
	}
	return nil
}

// readForm makes the body, which is a form, the object of texts that it stands for. Fields that the call does not know are
// passed over (RFC 6749, section 3.2).
func (c *call) readForm() error {
	form, err := url.ParseQuery(string(c.body))
	if err != nil {
		return fault.New(fault.InvalidRequest, "the body is not a valid form: percent-encode names and values")
	}
	schema := c.api.bodies[c.op.id]
	if schema.Ref != "" {
		schema = c.api.schemas.SchemaFromRef(schema.Ref)
	}
	known := map[string]string{}
	for name, values := range form {
		switch {
		case len(values) > 1:
			return fault.New(fault.InvalidRequest, "%.50q must be given only once", name)
		case schema.Properties[name] != nil && values[0] != "": // a field without a value counts as absent
			known[name] = values[0]
		}
	}
	c.form = true
	c.body, err = json.Marshal(known)
	return err
}

// readSyntax performs the 400 check: it parses the query and If-Match, and checks
// the syntax of Idempotency-Key and of a JSON body.
func (c *call) readSyntax() (err error) {
	if c.query, err = url.ParseQuery(c.request.URL.RawQuery); err != nil {
		return fault.New(fault.InvalidRequest, "the query string is malformed: percent-encode names and values")
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
	case c.op.method == http.MethodGet, c.op.method == http.MethodDelete, c.op.document, c.op.hook:
		return nil
	case (c.op.body == nil || c.op.bodyOptional) && len(c.body) == 0:
		return nil
	default:
		return checkSyntax(c.body)
	}
}

// checkQuery performs the 422 check of the query and, for a call that takes no body, of the body. A
// call with a JSON body goes on after a failed check, to report what is wrong with both.
func (c *call) checkQuery() error {
	c.refuse(fault.Join(c.queryProblems()...))
	if c.op.body == nil && !c.op.document && !c.op.hook && len(c.body) > 0 {
		c.refuse(c.checkEmpty())
	}
	if c.op.body != nil {
		return nil
	}
	return c.invalid
}

// queryProblems returns an error for each problem of the query: first the parameters that
// do not exist, then the others in their documented order.
func (c *call) queryProblems() []error {
	var problems []error
	known := make([]string, len(c.op.query))
	for i, p := range c.op.query {
		known[i] = p.name
	}
	for _, name := range slices.Sorted(maps.Keys(c.query)) {
		switch {
		case c.op.anyQuery || slices.Contains(known, name) || len(problems) == fault.MaxProblems:
		case len(known) == 0:
			problems = append(problems, fault.Invalid(below("", name), "is not a valid query parameter: this call takes none"))
		default:
			problems = append(problems, fault.Invalid(below("", name), "is not a valid query parameter: this call takes %s", join(known, " and ")))
		}
	}
	for _, p := range c.op.query {
		switch values, given := c.query[p.name]; {
		case given:
			problems = append(problems, p.problem(values))
		case p.required:
			problems = append(problems, fault.Invalid(p.name, "is required: add it to the query"))
		}
	}
	if slices.Contains(known, "since") {
		_, _, err := c.timeRange()
		problems = append(problems, err)
	}
	return problems
}

// problem checks the values of a parameter that is given.
func (p *queryParam) problem(values []string) error {
	switch {
	case len(values) > 1:
		return fault.Invalid(p.name, "must be given only once")
	case p.check != nil:
		return p.check(values[0])
	case values[0] == "" || !utf8.ValidString(values[0]):
		return fault.Invalid(p.name, "must not be empty or contain invalid UTF-8: give a value or remove the parameter")
	default:
		return nil
	}
}

// decode checks the JSON body against the schema of the operation's body type
// and decodes it into v, a pointer to that type. It refuses the call if the body does not fit the
// schema, but returns an error only if nothing can be decoded. Otherwise the caller goes on, with
// the zero value for each field of the wrong type, so that other mistakes are reported too. A
// refused call changes nothing.
func (c *call) decode(v any) error {
	if c.op.bodyOptional && len(c.body) == 0 {
		return nil
	}
	checked, err := checkBody(c.api.schemas, c.api.bodies[c.op.id], c.body)
	if err != nil {
		return err
	}
	c.order = checked.order
	c.refuse(fault.InvalidAll(checked.problems, 0))
	if checked.content == nil {
		return c.invalid
	}
	return unmarshal(checked.content, v)
}

// checkEmpty accepts an empty JSON object as the body of a call that takes no
// body, and refuses anything else.
func (c *call) checkEmpty() error {
	var fields map[string]any
	if err := unmarshal(c.body, &fields); err != nil || fields == nil {
		return fault.New(fault.ValidationFailed, "this call takes no request body: remove it")
	}
	var problems []error
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i < fault.MaxProblems {
			problems = append(problems, fault.Invalid(below("", name), "is not a valid field: this call takes no request body"))
		}
	}
	return fault.Join(problems...)
}
