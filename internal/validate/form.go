package validate

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strings"
)

// plainStyle is the style of a field of a multipart form, whose value is the content of its part.
const plainStyle = "plain"

// pair is a name with its value, which is still percent-encoded.
type pair struct{ name, raw string }

// fields are names with their values.
type fields struct {
	list   []pair
	byName map[string][]string
	rule   string // what is wrong with them, or ""
	failed string // the message for that
}

func (f *fields) add(name, raw string) {
	f.list = append(f.list, pair{name, raw})
	f.byName[name] = append(f.byName[name], raw)
}

// fail returns f with what is wrong.
func (f *fields) fail(rule, message string) *fields {
	f.rule, f.failed = rule, message
	return f
}

// isFull reports whether f has as many fields as are checked.
func (f *fields) isFull() bool { return len(f.list) >= maxFields }

const badEncoding = "must be percent-encoded UTF-8"

func tooManyFields() string { return "must have at most " + itoa(maxFields) + " fields to be checked" }

// readFields reads name=value&…, as of a query or a form.
func readFields(text string) *fields {
	f := &fields{byName: map[string][]string{}}
	for one := range strings.SplitSeq(text, "&") {
		if one == "" {
			continue
		}
		name, raw, _ := strings.Cut(one, "=")
		plain, ok := unescape(name, true)
		switch {
		case !ok:
			return f.fail("encoding", badEncoding)
		case f.isFull():
			return f.fail("bound", tooManyFields())
		}
		f.add(plain, raw)
	}
	return f
}

// readMultipart reads the parts of a multipart form (RFC 7578).
func readMultipart(contentType string, text []byte) *fields {
	f := &fields{byName: map[string][]string{}}
	const malformed = "must be a multipart form as RFC 7578 has it"
	_, parameters, err := mime.ParseMediaType(contentType)
	// The reader takes some texts that break off for one that ends.
	boundary := parameters["boundary"]
	last := "\n--" + boundary + "--"
	if err != nil || boundary == "" || !strings.HasSuffix("\n"+strings.TrimRight(string(text), "\r\n"), last) {
		return f.fail("syntax", malformed)
	}
	r := multipart.NewReader(bytes.NewReader(text), boundary)
	for {
		part, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return f
		}
		if err != nil || part.FormName() == "" || !isUTF8(part.FormName()) {
			return f.fail("syntax", malformed)
		}
		if f.isFull() {
			return f.fail("bound", tooManyFields())
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return f.fail("syntax", malformed)
		}
		f.add(part.FormName(), string(content))
	}
}

// checkForm checks the fields of a form, which are in c.query. A field that the schema does not name is a string.
func (c *checker) checkForm(t *mediaType, style string) {
	if c.query.failed != "" {
		c.problem(Problem{In: InBody, Schema: t.pointer, Rule: c.query.rule, Message: c.query.failed})
		return
	}
	v := value{kind: kindObject}
	texts := map[string][]string{}
	for _, one := range c.query.list {
		name := one.name
		if base, _, nested := strings.Cut(name, "["); nested && t.fields[base].style == "deepObject" {
			name = base
		}
		if texts[name] == nil {
			v.names = append(v.names, name)
		}
		texts[name] = append(texts[name], one.raw)
	}
	for _, name := range v.names {
		p, styled := t.fields[name]
		if !styled {
			p = parameter{in: InBody, name: name, style: style, explode: true, pointer: t.pointer}
		}
		c.readField(&p, t, styled, len(texts[name]))
		c.run.prefix = "/" + escapePointer(name)
		item, failed := c.decode(&p, texts[name])
		if failed != nil {
			c.problem(*failed)
			return
		}
		v.items = append(v.items, *item)
	}
	c.run.prefix = ""
	v.indexMembers()
	c.run.eval(t.schema, &v, nil, nil)
}

// readField sets the schema of a field that is given n times.
func (c *checker) readField(p *parameter, t *mediaType, styled bool, n int) {
	p.schema = t.schema.property(p.name)
	switch {
	case p.schema == nil && n == 1:
		p.schema = &schema{accepted: kindString}
	case p.schema == nil:
		p.schema = &schema{accepted: kindString | kindArray}
	case !styled && p.schema.accepted&(kindArray|kindObject) == kindObject && p.schema.accepted != anyKind:
		p.json = true // OpenAPI's default for a field that is an object
	}
}
