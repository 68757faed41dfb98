package validate

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// plainStyle is the style of a field of a multipart form, whose value is the content of its part.
const plainStyle = "plain"

// pair is a name with its value, which is still percent-encoded.
type pair struct {
	name, raw string
	isFile    bool // of a multipart form
}

// fields are names with their values.
type fields struct {
	list   []pair
	byName map[string][]string
	rule   string // what is wrong with them, or ""
	failed string // the message for that
}

func (f *fields) add(name, raw string) {
	f.list = append(f.list, pair{name: name, raw: raw})
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
		case !ok || strings.Contains(plain, "\x00"): // which ends a name for some services
			return f.fail("encoding", badEncoding)
		case f.isFull():
			return f.fail("bound", tooManyFields())
		}
		f.add(plain, raw)
	}
	return f
}

// malformedForm is what is wrong with a multipart form that readers may take for different things.
const malformedForm = "must be a multipart form as RFC 7578 has it"

// readMultipart reads the parts of a multipart form (RFC 7578). It is stricter than package multipart: what services read in different ways
// is no form.
func readMultipart(contentType string, text []byte) *fields {
	f := &fields{byName: map[string][]string{}}
	boundary, ok := boundaryOf(contentType)
	if !ok || !hasBoundaries(string(text), "--"+boundary) {
		return f.fail("syntax", malformedForm)
	}
	r := multipart.NewReader(bytes.NewReader(text), boundary)
	for {
		part, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return f
		}
		if err != nil || !isClear(part) {
			return f.fail("syntax", malformedForm)
		}
		if f.isFull() {
			return f.fail("bound", tooManyFields())
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return f.fail("syntax", malformedForm)
		}
		f.add(part.FormName(), string(content))
		f.list[len(f.list)-1].isFile = part.FileName() != ""
	}
}

// boundaryOf returns the boundary in a content type that is clear. ok is false if readers may take different ones.
func boundaryOf(contentType string) (boundary string, ok bool) {
	_, parameters, err := mime.ParseMediaType(contentType)
	boundary = parameters["boundary"]
	const others = "'()+_,-./:=? " // RFC 2046, 5.1.1
	isOther := func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune(others, r)
	}
	ok = err == nil && boundary != "" && len(boundary) <= 70 && !strings.HasSuffix(boundary, " ") && !strings.ContainsFunc(boundary, isOther) &&
		!strings.Contains(strings.ToLower(boundary), "boundary=")
	return boundary, ok
}

// hasBoundaries reports whether text consists of parts between lines with the delimiter, and has it nowhere else: readers skip what is
// before the first part and behind the last one, and they take lines with spaces behind the delimiter, lines that end otherwise, and
// even the delimiter within a line, some for a boundary and others for content.
func hasBoundaries(text, delimiter string) bool {
	rest, begins := strings.CutPrefix(text, delimiter)
	for begins {
		if behind, last := strings.CutPrefix(rest, "--"); last {
			return behind == "" || behind == "\r\n"
		}
		content, after, another := strings.Cut(rest, delimiter)
		if !another || !strings.HasPrefix(content, "\r\n") || !strings.HasSuffix(content, "\r\n") || content == "\r\n" || !hasLines(content[2:]) {
			return false
		}
		rest = after
	}
	return false
}

// hasLines reports whether the head of a part consists of lines that end with CRLF, none of which goes on in the next one: readers take a
// line feed alone for an end of a line, and so of the head, or for a part of the line.
func hasLines(part string) bool {
	head, _, ends := strings.Cut(part, "\r\n\r\n")
	for line := range strings.SplitSeq(head, "\r\n") {
		if line == "" || line[0] == ' ' || line[0] == '\t' || strings.ContainsAny(line, "\r\n\x00") {
			return false
		}
	}
	return ends
}

// isClear reports whether all services read the name of a part, and its content, in the same way.
func isClear(part *multipart.Part) bool {
	dispositions := part.Header["Content-Disposition"]
	name := part.FormName()
	if len(dispositions) != 1 || name == "" || !isUTF8(name) || strings.Contains(name, "\x00") || strings.HasPrefix(name, "'") || strings.Contains(dispositions[0], "\\") {
		return false
	}
	compact := strings.NewReplacer(" ", "", "\t", "").Replace(strings.ToLower(dispositions[0]))
	if strings.Contains(compact, ";name*") { // RFC 2231 encodes the name, which RFC 7578 does not allow
		return false
	}
	_, parameters, err := mime.ParseMediaType(dispositions[0])
	if err != nil {
		return false
	}
	for key, text := range parameters { // some readers look for name= anywhere
		if key != "name" && key != "filename" || strings.Contains(strings.ToLower(text), "name=") {
			return false
		}
	}
	for _, encoding := range part.Header["Content-Transfer-Encoding"] {
		switch strings.ToLower(encoding) {
		case "", "7bit", "8bit", "binary":
		default:
			return false
		}
	}
	types := part.Header["Content-Type"]
	if len(types) > 1 {
		return false
	}
	if len(types) == 0 || part.FileName() != "" {
		return true
	}
	_, parameters, err = mime.ParseMediaType(types[0])
	return err == nil && isUTF8Charset(parameters["charset"])
}

// checkForm checks the fields of a form, which are in c.query. A field that the schema does not name is a string.
func (c *checker) checkForm(t *mediaType, style string) {
	if c.query.failed != "" {
		c.problem(Problem{In: InBody, Schema: t.pointer, Rule: c.query.rule, Message: c.query.failed})
		return
	}
	for _, charset := range c.query.byName["_charset_"] { // RFC 7578, 4.6
		if !isUTF8Charset(charset) {
			c.problem(Problem{In: InBody, Schema: t.pointer, Rule: "charset", Message: "must have the charset UTF-8", Status: statusUnsupported})
			return
		}
	}
	v := value{kind: kindObject}
	texts, files := map[string][]string{}, map[string]bool{}
	for _, one := range c.query.list {
		name := one.name
		if base, _, nested := strings.Cut(name, "["); nested && t.fields[base].style == "deepObject" {
			name = base
		}
		if texts[name] == nil {
			v.names = append(v.names, name)
		}
		texts[name] = append(texts[name], one.raw)
		files[name] = files[name] || one.isFile
	}
	for _, name := range v.names {
		p, styled := t.fields[name]
		if !styled {
			p = parameter{in: InBody, name: name, style: style, explode: true, pointer: t.pointer}
		}
		c.readField(&p, t, styled, len(texts[name]))
		c.run.prefix = "/" + document.EscapeToken(name)
		if files[name] && p.schema.accepted&^(kindNumber|kindBool|kindNull) == 0 {
			c.problem(*p.wrong("file", "must be a field, and not a file"))
			return
		}
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
	p.schema = c.member(t.schema, p.name)
	switch {
	case p.schema == nil && n == 1:
		p.schema = &schema{accepted: kindString}
	case p.schema == nil:
		p.schema = &schema{accepted: kindString | kindArray}
	case p.style == plainStyle && p.schema.accepted&(kindArray|kindObject) == 0:
		p.json = false // a text of its own
	case !styled && p.schema.accepted&(kindArray|kindObject) == kindObject && p.schema.accepted != anyKind:
		p.json = true // OpenAPI's default for a field that is an object
	}
}
