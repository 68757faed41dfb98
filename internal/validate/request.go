package validate

import (
	"errors"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// Request is what an Operation checks of a request.
type Request struct {
	// Path is the path in the normal form of gateway.NormalizePath, in which the route of the operation has matched it.
	Path string
	// Query is what follows the question mark, as it came.
	Query string
	// Header returns the values of a header, by its name in any letters.
	Header func(name string) []string
	// Resembles reports whether there is a header with the same name but for underscores in place of dashes, or the other way
	// round: many services cannot tell the two apart.
	Resembles func(name string) bool
	// HasBody reports whether the request has a body of one byte at least.
	HasBody bool
	// Body is the body, if Wants is WantAll and it has at most MaxBody bytes.
	Body []byte
	// BodySize is the size of the body, or of its part that has come, if it is too large for Body.
	BodySize int64
}

// Want is what Check must know of a body.
type Want uint8

// What Check must know of a body.
const (
	WantNothing Want = iota
	WantFirst        // whether it has any byte
	WantAll
)

func itoa(i int) string { return strconv.Itoa(i) }

// Wants returns what Check must know of the body of r, which is to be held until then. r.HasBody is true if the request may have one.
func (o *Operation) Wants(r *Request) Want {
	if !r.HasBody {
		return WantNothing
	}
	if o.body == nil {
		return WantFirst
	}
	t, problem := o.body.mediaType(r)
	switch {
	case problem == nil && t.form != unchecked:
		return WantAll
	case problem != nil || o.body.required:
		return WantFirst
	}
	return WantNothing
}

// Check returns what r does otherwise than the document says, at most MaxProblems.
func (o *Operation) Check(r *Request) []Problem {
	c := checker{request: r, path: &o.path, parameters: o.parameters}
	c.checkParameters(o.parameters)
	if !c.run.exceeded {
		c.checkBody(o)
	}
	if c.run.exceeded {
		c.run.problems = append(c.run.problems[:min(len(c.run.problems), MaxProblems-1)], Problem{
			In: c.run.in, Rule: "bound", Message: "takes too long to check", Status: statusInvalid,
		})
	}
	return c.run.problems
}

// checker checks one request.
type checker struct {
	request    *Request
	path       *template
	parameters []parameter
	run        run

	query   *fields         // nil until it is read
	cookies *fields         // the same
	unclear map[string]bool // the names of the cookies without "=", and of those in quotes, which services read in different ways
}

// problem adds a problem.
func (c *checker) problem(p Problem) {
	if len(c.run.problems) >= MaxProblems {
		return
	}
	if p.Status == 0 {
		p.Status = statusInvalid
	}
	c.run.problems = append(c.run.problems, p)
}

func (c *checker) checkParameters(list []parameter) {
	for i := range list {
		if c.run.exceeded || len(c.run.problems) >= MaxProblems {
			return
		}
		p := &list[i]
		c.run.in, c.run.prefix = p.in, "/"+document.EscapeToken(p.name)
		c.checkParameter(p)
	}
}

// wrong adds a problem with a parameter itself.
func (c *checker) wrong(p *parameter, rule, message string) {
	c.problem(Problem{In: p.in, Pointer: "/" + document.EscapeToken(p.name), Schema: p.pointer, Rule: rule, Message: message})
}

// checkParameter checks one parameter.
func (c *checker) checkParameter(p *parameter) {
	texts, bad := c.texts(p)
	switch {
	case bad != nil && bad.failed != "":
		c.wrong(p, bad.rule, bad.failed)
		return
	case p.in == InHeader && c.request.Resembles(p.name):
		c.wrong(p, "duplicate", "must not come under a name with other dashes and underscores")
		return
	case p.in == InCookie && c.unclear[p.name]:
		c.wrong(p, "encoding", "must have a value that is not in double quotes")
		return
	}
	apart := c.hasProperties(p)
	if p.in == InQuery && p.style == "form" && p.explode && !p.json && p.schema != nil && p.schema.accepted == kindObject ||
		p.style == "deepObject" && apart {
		texts = nil // the object has none
	}
	switch {
	case len(texts) == 0 && !apart && p.required:
		c.wrong(p, "required", "is required")
		return
	case p.schema == nil:
		return
	}
	if len(texts) > 0 && (!p.emptyAllowed || len(texts) > 1 || texts[0] != "") {
		c.checkTexts(p, texts)
	}
	if apart {
		c.checkTexts(p, nil)
	}
}

// checkTexts checks the texts of a parameter or a field.
func (c *checker) checkTexts(p *parameter, texts []string) {
	v, failed := c.decode(p, texts)
	if failed != nil {
		c.problem(*failed)
		return
	}
	c.run.eval(p.schema, v, nil, nil)
}

// texts returns the values of a parameter as they came, and what they were read from.
func (c *checker) texts(p *parameter) (texts []string, from *fields) {
	switch p.in {
	case InPath:
		if raw, found := c.path.value(c.request.Path, p.name); found {
			return []string{raw}, nil
		}
	case InHeader:
		return c.request.Header(p.name), nil
	case InQuery:
		if c.query == nil {
			c.query = readFields(c.request.Query)
		}
		return c.query.byName[p.name], c.query
	case InCookie:
		c.readCookies()
		return c.cookies.byName[p.name], nil
	}
	return nil, nil
}

func (c *checker) readCookies() {
	if c.cookies != nil {
		return
	}
	c.cookies, c.unclear = &fields{byName: map[string][]string{}}, map[string]bool{}
	for _, header := range c.request.Header("Cookie") {
		for one := range strings.SplitSeq(header, ";") {
			name, raw, has := strings.Cut(one, "=")
			name, raw = strings.Trim(name, " \t"), strings.Trim(raw, " \t") // as services do
			if !has || strings.HasPrefix(raw, `"`) {
				c.unclear[name] = true
			}
			if has {
				c.cookies.add(name, raw)
			}
		}
	}
}

// unescape decodes percent-encoded UTF-8, and if form is true, a plus as a space.
func unescape(raw string, form bool) (text string, ok bool) {
	if strings.IndexByte(raw, '%') < 0 && (!form || strings.IndexByte(raw, '+') < 0) {
		return raw, isUTF8(raw)
	}
	var err error
	if form {
		text, err = url.QueryUnescape(raw)
	} else {
		text, err = url.PathUnescape(raw)
	}
	return text, err == nil && isUTF8(text)
}

func isUTF8(s string) bool { return strings.ToValidUTF8(s, "") == s }

// mediaType returns the media type of the document for the content type of r, with how its body is read, or what is wrong with that.
func (b *body) mediaType(r *Request) (mediaType, *Problem) {
	refuse := func(status int, rule, message string) (mediaType, *Problem) {
		return mediaType{}, &Problem{In: InContentType, Schema: b.pointer, Rule: rule, Message: message, Status: status}
	}
	values := r.Header("Content-Type")
	switch {
	case len(values) == 0 || len(values) == 1 && strings.Trim(values[0], " \t") == "":
		return refuse(statusUnsupported, "media_type", "must be given: the request has a body")
	case len(values) > 1 || r.Resembles("Content-Type"):
		return refuse(statusInvalid, "duplicate", "must be given once")
	}
	name, parameters, err := mime.ParseMediaType(values[0])
	if err != nil {
		return refuse(statusUnsupported, "media_type", "must be a media type")
	}
	of := b.find(name)
	if of == nil {
		return refuse(statusUnsupported, "media_type", "must be one of the media types of the operation")
	}
	t := *of
	if t.form = formOf(name); t.schema == nil { // of may be a range
		t.form = unchecked
	}
	switch {
	case t.form == unchecked:
		return t, nil
	case !isClearType(values[0], parameters):
		return refuse(statusUnsupported, "media_type", "must have plain parameters, which are read in one way")
	case !isUTF8Charset(parameters["charset"]):
		return refuse(statusUnsupported, "charset", "must have the charset UTF-8, or none")
	}
	for _, coding := range r.Header("Content-Encoding") {
		if coding = strings.ToLower(strings.Trim(coding, " \t")); coding != "" && coding != "identity" {
			return refuse(statusUnsupported, "content_coding", "must be without a content coding")
		}
	}
	if r.Resembles("Content-Encoding") {
		return refuse(statusUnsupported, "content_coding", "must be without a content coding")
	}
	return t, nil
}

// isClearType reports whether all services read the same charset and boundary in a content type: also those that do not know escapes or
// encodings of parameters (RFC 2231), and those that look for a name anywhere.
func isClearType(contentType string, parameters map[string]string) bool {
	if strings.ContainsAny(contentType, `\*`) {
		return false
	}
	for name, text := range parameters {
		text = strings.ToLower(text)
		if name != "boundary" && (strings.Contains(text, "boundary") || strings.Contains(text, "charset")) || strings.Contains(text, "charset=") {
			return false
		}
	}
	return true
}

func isUTF8Charset(name string) bool {
	return slices.Contains([]string{"", "utf-8", "utf8", "us-ascii"}, strings.ToLower(name))
}

// find returns the most specific media type of the document for one of a request.
func (b *body) find(name string) *mediaType {
	kind, _, _ := strings.Cut(name, "/")
	for _, want := range []string{name, kind + "/*", "*/*"} {
		for i := range b.types {
			if b.types[i].name == want {
				return &b.types[i]
			}
		}
	}
	return nil
}

func (c *checker) checkBody(o *Operation) {
	r, b := c.request, o.body
	c.run.in, c.run.prefix = InBody, ""
	wrong := func(pointer string, status int, rule, message string) {
		c.problem(Problem{In: InBody, Schema: pointer, Rule: rule, Message: message, Status: status})
	}
	switch {
	case b == nil && r.HasBody:
		wrong(o.pointer, statusUnsupported, "undeclared", "must be left out: the operation has none")
		return
	case b == nil:
		return
	case !r.HasBody:
		if b.required {
			wrong(b.pointer, statusInvalid, "required", "is required")
		}
		return
	}
	t, refused := b.mediaType(r)
	switch {
	case refused != nil:
		c.problem(*refused)
		return
	case t.form == unchecked:
		return
	case r.BodySize > MaxBody || len(r.Body) > MaxBody:
		wrong(b.pointer, statusTooLarge, "size", "must have at most "+itoa(MaxBody)+" bytes to be checked")
		return
	}
	switch t.form {
	case urlEncoded:
		c.query = readFields(string(r.Body)) // where the properties of objects are
		c.checkForm(&t, "form")
		return
	case multipartForm:
		c.query = readMultipart(r.Header("Content-Type")[0], r.Body)
		c.checkForm(&t, plainStyle)
		return
	}
	v, err := parseJSON(r.Body)
	if err != nil {
		c.problem(Problem{In: InBody, Schema: t.pointer, Rule: ruleOf(err), Message: err.Error(), Status: statusInvalid})
		return
	}
	c.run.eval(t.schema, v, nil, nil)
}

// ruleOf returns the rule of an error of parseJSON.
func ruleOf(err error) string {
	switch {
	case errors.Is(err, errDuplicate):
		return "duplicate"
	case errors.Is(err, errTrailing):
		return "trailing"
	case errors.Is(err, errDepth):
		return "depth"
	case errors.Is(err, errNumber):
		return "number"
	}
	return "syntax"
}
