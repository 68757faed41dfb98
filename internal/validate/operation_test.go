package validate

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/document"
)

// compileOne compiles the first operation of a document.
func compileOne(t testing.TB, text string) Result {
	t.Helper()
	root, minor, list := sources(t, []byte(text))
	if len(list) == 0 {
		t.Fatalf("got no operation in\n%s", text)
	}
	return Compile(root, minor, list[:1], nil)[0]
}

// operation compiles the operation of a document with a path /a/{p}, of which it is the post.
func operation(t testing.TB, version, post string) *Operation {
	t.Helper()
	text := "openapi: " + version + ".0\npaths:\n  /a/{p}:\n    post:\n      " + strings.ReplaceAll(strings.TrimSpace(post), "\n", "\n      ") + "\n"
	result := compileOne(t, text)
	if result.Operation == nil {
		t.Fatalf("got unchecked: %s, want an operation for\n%s", result.Reason, text)
	}
	return result.Operation
}

// request is a request in the form "path?query", with headers "Name: value" and a body.
func request(target string, headers []string, text string) *Request {
	path, query, _ := strings.Cut(target, "?")
	header := http.Header{}
	for _, one := range headers {
		name, value, _ := strings.Cut(one, ": ")
		header.Add(name, value)
	}
	return &Request{
		Path: "/a/" + path, Query: query, Header: func(name string) []string { return header.Values(name) },
		Resembles: func(name string) bool {
			return len(header.Values(strings.ReplaceAll(name, "-", "_"))) > 0 && strings.Contains(name, "-")
		},
		HasBody: text != "", Body: []byte(text), BodySize: int64(len(text)),
	}
}

// summary returns problems as "in pointer rule status" each, with 400 left out.
func summary(problems []Problem) string {
	var list []string
	for _, p := range problems {
		text := p.In + p.Pointer + " " + p.Rule
		if p.Status != statusInvalid {
			text += fmt.Sprint(" ", p.Status)
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// Guarantee: parameters of every style and location mean the values that OpenAPI says, and one that its schema does not
// accept, that is missing, or that is given twice, is a problem with its name and rule.
func TestParameters(t *testing.T) {
	for _, c := range []struct{ parameter, target, header, want string }{
		{"{in: query, name: n, schema: {type: integer, minimum: 1}}", "x?n=1", "", ""},
		{"{in: query, name: n, schema: {type: integer, minimum: 1}}", "x?", "", ""},
		{"{in: query, name: n, schema: {type: integer, minimum: 1}}", "x?n=0", "", "query/n minimum"},
		{"{in: query, name: n, schema: {type: integer, minimum: 1}}", "x?n=1.0", "", ""},
		{"{in: query, name: n, schema: {type: integer}}", "x?n=1.5", "", "query/n type"},
		{"{in: query, name: n, schema: {type: integer}}", "x?n=007", "", "query/n type"},
		{"{in: query, name: n, schema: {type: integer}}", "x?n=", "", "query/n type"},
		{"{in: query, name: n, allowEmptyValue: true, schema: {type: integer}}", "x?n=", "", ""},
		{"{in: query, name: n, schema: {type: integer}}", "x?n=1&n=2", "", "query/n duplicate"},
		{"{in: query, name: n, schema: {type: integer}}", "x?%6E=a", "", "query/n type"},
		{"{in: query, name: n, schema: {type: number}}", "x?n=1e9999", "", "query/n number"},
		{"{in: query, name: n, schema: {}}", "x?n=%zz", "", "query/n encoding"},
		{"{in: query, name: n, schema: {}}", "x?n=1&n=b", "", ""},
		{"{in: query, name: n, schema: {maximum: 5}}", "x?n=1&n=2", "", ""},
		{"{in: query, name: n, schema: {maximum: 5}}", "x?n=1&n=6", "", "query/n maximum"},
		{"{in: query, name: n, schema: {pattern: '^[a-z]+$'}}", "x?n=A&n=b", "", "query/n pattern"},
		{"{in: query, name: n, schema: {maxItems: 1}}", "x?n=a&n=b", "", "query/n maxItems"},
		{"{in: query, name: n, schema: {}}", "x?%zz=1&n=1", "", "query/n encoding"},
		{"{in: query, name: n, schema: {type: string, maxLength: 3}}", "x?n=a+b", "", ""},
		{"{in: query, name: n, schema: {type: string, maxLength: 3}}", "x?n=a%20bc", "", "query/n maxLength"},
		{"{in: query, name: n, schema: {type: boolean}}", "x?n=true", "", ""},
		{"{in: query, name: n, schema: {type: boolean}}", "x?n=yes", "", "query/n type"},
		{"{in: query, name: n, required: true, schema: {type: boolean}}", "x?", "", "query/n required"},
		{"{in: query, name: n, schema: {type: [integer, string], minimum: 5, pattern: '^[a-z]+$'}}", "x?n=7", "", ""},
		{"{in: query, name: n, schema: {type: [integer, string], minimum: 5, pattern: '^[a-z]+$'}}", "x?n=a", "", ""},
		{"{in: query, name: n, schema: {type: [integer, string], minimum: 5, pattern: '^[a-z]+$'}}", "x?n=3", "", "query/n minimum"},
		{"{in: query, name: n, schema: {enum: [a, b]}}", "x?n=b", "", ""},
		{"{in: query, name: n, schema: {enum: [a, b]}}", "x?n=c", "", "query/n enum"},
		{"{in: query, name: n, schema: {maxLength: 3, minimum: 5}}", "x?n=abc", "", ""},
		{"{in: query, name: n, schema: {maxLength: 3, minimum: 5}}", "x?n=5", "", ""},
		{"{in: query, name: n, schema: {maxLength: 3, minimum: 5}}", "x?n=abcd", "", "query/n maxLength"},
		{"{in: query, name: n, schema: {maxLength: 3, minimum: 5}}", "x?n=4", "", "query/n minimum"},
		{"{in: query, name: n, schema: {enum: ['1', '2']}}", "x?n=1", "", ""},
		{"{in: query, name: n, schema: {enum: [1, 2]}}", "x?n=1", "", ""},
		{"{in: query, name: n, schema: {enum: [1, 2]}}", "x?n=3", "", "query/n enum"},
		{"{in: query, name: n, schema: {const: true}}", "x?n=true", "", ""},
		{"{in: query, name: n, schema: {const: '5'}}", "x?n=5", "", ""},
		{"{in: query, name: n, schema: {maxItems: 2}}", "x?n=4&n=4&n=4", "", "query/n maxItems"},
		{"{in: header, name: X-N, schema: {pattern: '^[a-z]+$'}}", "x", "X-N: A", "header/X-N pattern"},
		// Arrays.
		{"{in: query, name: n, schema: {type: array, items: {type: integer}, maxItems: 2}}", "x?n=1&n=2", "", ""},
		{"{in: query, name: n, schema: {type: array, items: {type: integer}, maxItems: 2}}", "x?n=1&n=a", "", "query/n/1 type"},
		{"{in: query, name: n, schema: {type: array, items: {type: integer}, maxItems: 2}}", "x?n=1&n=2&n=3", "", "query/n maxItems"},
		{"{in: query, name: n, explode: false, schema: {type: array, items: {type: integer}}}", "x?n=1,2", "", ""},
		{"{in: query, name: n, explode: false, schema: {type: array, items: {type: integer}}}", "x?n=1%2C2", "", ""},
		{"{in: query, name: n, explode: false, schema: {type: array, items: {type: integer}}}", "x?n=1,a", "", "query/n/1 type"},
		{"{in: query, name: n, explode: false, schema: {type: array, items: {type: integer}}}", "x?n=1&n=2", "", "query/n duplicate"},
		{"{in: query, name: n, explode: false, schema: {type: array, items: {enum: [a, 'b,c']}}}", "x?n=a,b%2Cc", "", ""},
		{"{in: query, name: n, explode: false, schema: {type: array, maxItems: 2}}", "x?n=a%2Cb%2cc", "", "query/n maxItems"},
		{"{in: query, name: n, style: spaceDelimited, explode: false, schema: {type: array, maxItems: 2}}", "x?n=a+b%20c", "", "query/n maxItems"},
		{"{in: query, name: n, style: spaceDelimited, schema: {type: array, items: {type: integer}}}", "x?n=1%202", "", ""},
		{"{in: query, name: n, style: pipeDelimited, schema: {type: array, items: {type: integer}}}", "x?n=1|2", "", ""},
		{"{in: query, name: n, style: pipeDelimited, schema: {type: array, items: {type: integer}}}", "x?n=1%7Cb", "", "query/n/1 type"},
		// Objects.
		{"{in: query, name: n, schema: {type: object, properties: {a: {type: integer}, b: {type: string}}, required: [a]}}", "x?a=1&b=2", "", ""},
		{"{in: query, name: n, schema: {type: object, properties: {a: {type: integer}, b: {type: string}}, required: [a]}}", "x?b=2", "", "query/n required"},
		{"{in: query, name: n, schema: {type: object, properties: {a: {type: integer}, b: {type: string}}, required: [a]}}", "x?", "", ""},
		{"{in: query, name: n, explode: false, schema: {type: object, properties: {a: {type: integer}}}}", "x?n=a,1", "", ""},
		{"{in: query, name: n, explode: false, schema: {type: object, properties: {a: {type: integer}}}}", "x?n=a,b", "", "query/n/a type"},
		{"{in: query, name: n, explode: false, schema: {type: object, properties: {a: {type: integer}}}}", "x?n=a", "", "query/n style"},
		{"{in: query, name: n, style: deepObject, schema: {type: object, properties: {a: {type: integer}}, additionalProperties: false}}", "x?n[a]=1", "", ""},
		{"{in: query, name: n, style: deepObject, schema: {type: object, properties: {a: {type: integer}}, additionalProperties: false}}", "x?n%5Ba%5D=b", "", "query/n/a type"},
		{"{in: query, name: n, style: deepObject, schema: {type: object, properties: {a: {type: integer}}, additionalProperties: false}}", "x?n[c]=1", "", "query/n/c false"},
		{"{in: query, name: n, style: deepObject, schema: {type: object, properties: {a: {type: integer}}}}", "x?n[a]=1&n[a]=2", "", "query/n duplicate"},
		{"{in: query, name: n, style: deepObject, required: true, schema: {type: object, properties: {a: {type: integer}}}}", "x?", "", "query/n required"},
		{"{in: query, name: n, style: deepObject, schema: {type: object}}", "x?n=a", "", "query/n style"},
		{"{in: query, name: n, style: deepObject, schema: {type: object}}", "x?n[a]=1&n=a", "", "query/n style"},
		{"{in: query, name: n, style: deepObject, schema: {type: object}}", "x?n[]=a", "", "query/n style"},
		{"{in: query, name: n, style: deepObject, schema: {type: object}}", "x?n[a][b]=1", "", "query/n style"},
		{"{in: query, name: n, style: deepObject, schema: {type: object}}", "x?n[a]=1&n[a]b=1", "", "query/n style"},
		{"{in: query, name: n, style: deepObject, schema: {type: object}}", "x?n%5Ba", "", "query/n style"},
		{"{in: query, name: n, style: deepObject, schema: {type: object}}", "x?m[a][b]=1&nn[]=2", "", ""},
		{"{in: query, name: n, style: deepObject, allowEmptyValue: true, schema: {type: object, properties: {a: {type: integer}}}}", "x?n=&n[a]=b", "", "query/n style"},
		{"{in: query, name: n, style: deepObject, schema: {properties: {a: {type: integer}}}}", "x?n[a]=b", "", "query/n/a type"},
		{"{in: query, name: n, style: deepObject, schema: {properties: {a: {type: integer}}}}", "x?n=b", "", ""},
		{"{in: query, name: n, schema: {properties: {a: {type: integer}}}}", "x?a=b", "", "query/n/a type"},
		{"{in: query, name: n, schema: {properties: {a: {type: integer}}}}", "x?n=1&a=b", "", "query/n/a type"},
		{"{in: query, name: n, allowEmptyValue: true, schema: {type: object, properties: {a: {type: integer}}}}", "x?n=&a=b", "", "query/n/a type"},
		{"{in: query, name: n, required: true, schema: {type: object, properties: {a: {type: integer}}}}", "x?n=b", "", "query/n required"},
		// JSON.
		{"{in: query, name: n, content: {application/json: {schema: {type: object, required: [a]}}}}", "x?n=%7B%22a%22:1%7D", "", ""},
		{"{in: query, name: n, content: {application/json: {schema: {type: object, required: [a]}}}}", "x?n={}", "", "query/n required"},
		{"{in: query, name: n, content: {application/json: {schema: {type: object, required: [a]}}}}", "x?n={", "", "query/n syntax"},
		// Paths.
		{"{in: path, name: p, required: true, schema: {type: integer}}", "12", "", ""},
		{"{in: path, name: p, required: true, schema: {type: integer}}", "a", "", "path/p type"},
		{"{in: path, name: p, required: true, schema: {type: string, maxLength: 3}}", "a%2Fb", "", ""},
		{"{in: path, name: p, required: true, schema: {type: string, const: a+b}}", "a+b", "", ""},
		{"{in: path, name: p, required: true, schema: {type: array, items: {type: integer}}}", "1,2", "", ""},
		{"{in: path, name: p, required: true, style: label, schema: {type: integer}}", ".5", "", ""},
		{"{in: path, name: p, required: true, style: label, schema: {type: integer}}", "5", "", "path/p style"},
		{"{in: path, name: p, required: true, style: label, explode: true, schema: {type: array, items: {type: integer}}}", ".5.6", "", ""},
		{"{in: path, name: p, required: true, style: matrix, schema: {type: integer}}", ";p=5", "", ""},
		{"{in: path, name: p, required: true, style: matrix, schema: {type: array, items: {type: integer}}}", ";p=5,6", "", ""},
		{"{in: path, name: p, required: true, style: matrix, explode: true, schema: {type: array, items: {type: integer}}}", ";p=5;p=a", "", "path/p/1 type"},
		{"{in: path, name: p, required: true, style: matrix, explode: true, schema: {type: object, properties: {a: {type: integer}}}}", ";a=5", "", ""},
		{"{in: path, name: p, required: true, explode: true, schema: {type: object, properties: {a: {type: integer}}}}", "a=b", "", "path/p/a type"},
		// Headers and cookies.
		{"{in: header, name: X-N, schema: {type: integer}}", "x", "x-n: 5", ""},
		{"{in: header, name: X-N, schema: {type: integer}}", "x", "x-n: %35", "header/X-N type"},
		{"{in: header, name: X-N, schema: {type: array, items: {type: integer}}}", "x", "x-n: 5, 6", ""},
		{"{in: header, name: X-N, schema: {type: integer}}", "x", "x-n: 5|x-n: 6", "header/X-N duplicate"},
		{"{in: header, name: Accept, required: true, schema: {type: integer}}", "x", "", ""},
		{"{in: cookie, name: c, required: true, schema: {type: integer}}", "x", "Cookie: a=b; c=5", ""},
		{"{in: cookie, name: c, required: true, schema: {type: integer}}", "x", "Cookie: a=b", "cookie/c required"},
		{"{in: cookie, name: c, schema: {type: integer}}", "x", "Cookie: c=5; c=6", "cookie/c duplicate"},
		{"{in: cookie, name: c, schema: {type: integer}}", "x", "Cookie: c=5|Cookie: c=6", "cookie/c duplicate"},
		{"{in: cookie, name: c, schema: {type: integer}}", "x", "Cookie: c =a", "cookie/c type"},
		{"{in: cookie, name: c, schema: {type: integer}}", "x", "Cookie: c= 5 ;\tc =6", "cookie/c duplicate"},
		{"{in: cookie, name: c, schema: {type: string, maxLength: 3}}", "x", "Cookie: a=\"b\"; b; c=abc", ""},
		{"{in: cookie, name: c, schema: {type: string, maxLength: 3}}", "x", "Cookie: c=\"a\"", "cookie/c encoding"},
		{"{in: cookie, name: c, schema: {type: integer}}", "x", "Cookie: c=5; c", "cookie/c encoding"},
		{"{in: cookie, name: c, schema: {type: integer}}", "x", "Cookie: c", "cookie/c encoding"},
		{"{in: header, name: X-N, schema: {type: integer}}", "x", "X_N: a", "header/X-N duplicate"},
		{"{in: header, name: X-N, required: true, schema: {type: integer}}", "x", "X-N: 5|X_N: 6", "header/X-N duplicate"},
	} {
		o := operation(t, "3.1", "parameters: ["+c.parameter+"]\nresponses: {}")
		var headers []string
		if c.header != "" {
			headers = strings.Split(c.header, "|")
		}
		if got := summary(o.Check(request(c.target, headers, ""))); got != c.want {
			t.Errorf("%s: %s %s: got %q, want %q", c.parameter, c.target, c.header, got, c.want)
		}
	}
}

// Guarantee: a body is checked by its content type, and what cannot be checked is a problem with the status of its refusal
// (edge.md, section 6).
func TestBodies(t *testing.T) {
	o := operation(t, "3.1", `
requestBody:
  required: true
  content:
    application/json:
      schema:
        type: object
        required: [qty, name]
        properties:
          qty: {type: integer, minimum: 1}
          name: {type: string, pattern: '^[a-z]+$'}
          tags: {type: array, uniqueItems: true, items: {enum: [a, b]}}
          id: {type: string, readOnly: true}
        additionalProperties: false
    application/vnd.a+json: {schema: {type: array}}
    application/x-www-form-urlencoded:
      schema: {type: object, required: [qty], properties: {qty: {type: integer}, tags: {type: array, items: {type: string}}, o: {type: object, required: [a]}}, additionalProperties: false}
    multipart/form-data:
      schema: {type: object, required: [qty], properties: {qty: {type: integer}, tags: {type: array, items: {type: string}}, o: {type: object, required: [a]}, f: {type: string, maxLength: 3}}, additionalProperties: false}
    text/*: {}
`)
	parts := func(parts ...string) string {
		var b strings.Builder
		for _, one := range parts {
			name, content, _ := strings.Cut(one, "=")
			b.WriteString("--x\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + content + "\r\n")
		}
		return b.String() + "--x--\r\n"
	}
	const multi = "Content-Type: multipart/form-data; boundary=x"
	const json = "Content-Type: application/json"
	const form = "Content-Type: application/x-www-form-urlencoded"
	for _, c := range []struct{ headers, text, want string }{
		{json, `{"qty": 1, "name": "a"}`, ""},
		{"Content-Type: Application/JSON; charset=UTF-8", `{"qty": 1.0, "name": "a"}`, ""},
		{json, `{"qty": 0, "name": "A", "tags": ["a", "a", 5]}`, "body/qty minimum, body/name pattern, body/tags uniqueItems, body/tags/2 enum"},
		{json, `{"qty": "1"}`, "body required, body/qty type"},
		{json, `{"qty": 1, "name": "a", "x/y": 1}`, "body/x~1y false"},
		{json, `[]`, "body type"},
		{json, ``, "body required"},
		{"", ``, "body required"},
		{"Content-Type: application/xml", ``, "body required"},
		{"Content-Type: text/plain", ``, "body required"},
		{json, `{"qty": 1,}`, "body syntax"},
		{json, `{"qty": 1, "name": "a"} x`, "body trailing"},
		{json, `{"qty": 1, "name": "a"}{}`, "body trailing"},
		{json, `{"qty": 1, "name": "a", "qty": 2}`, "body duplicate"},
		{json, `{"qty": 1, "name": "a", "q\u0074y": 2}`, "body duplicate"},
		{json, "{\"qty\": 1, \"name\": \"\xff\"}", "body syntax"},
		{json, `{"qty": 1e1000000000, "name": "a"}`, "body number"},
		{json, strings.Repeat("[", 300) + strings.Repeat("]", 300), "body depth"},
		{json, `"` + strings.Repeat("a", MaxBody) + `"`, "body size 413"},
		{"Content-Type: application/json; charset=latin1", `{}`, "content_type charset 415"},
		{json + "|Content-Encoding: gzip", `{}`, "content_type content_coding 415"},
		{json + "|Content-Encoding: identity", `{"qty": 1, "name": "a"}`, ""},
		{json + "|" + json, `{}`, "content_type duplicate"},
		{json + "|Content_type: text/plain", `{}`, "content_type duplicate"},
		{json + "|Content_encoding: gzip", `{}`, "content_type content_coding 415"},
		{"", `{}`, "content_type media_type 415"},
		{"Content-Type: application/xml", `{}`, "content_type media_type 415"},
		{"Content-Type: application/vnd.a+json", `[]`, ""},
		{"Content-Type: text/plain; charset=latin1|Content-Encoding: gzip", strings.Repeat("x", 2*MaxBody), ""},
		{form, "qty=1&tags=a&tags=b", ""},
		{form, "qty=a&tags=b", "body/qty type"},
		{form, "qty=1&qty=2", "body/qty duplicate"},
		{form, "tags=a&x=1", "body required, body/x false"},
		{form, "qty=1&o=%7B%22a%22:1%7D", ""},
		{form, "qty=1&o=%7B%7D", "body/o required"},
		{form, "qty=1&o=5", "body/o type"},
		{form, "qty=%zz", "body/qty encoding"},
		{form, "%zz=1", "body encoding"},
		{form, strings.Repeat("a&", 10_001), "body bound"},
		{multi, parts("qty=1", "tags=a", "tags=b", "f=\xff\x00"), ""},
		{multi, parts("qty=%31", "f=abcd"), "body/qty type, body/f maxLength"},
		{multi, parts("qty=1", "qty=2"), "body/qty duplicate"},
		{multi, parts("x=1"), "body required, body/x false"},
		{multi, parts("qty=1", `o={"a": 1}`), ""},
		{multi, parts("qty=1", `o={}`), "body/o required"},
		{multi, parts("qty=1", `o={`), "body/o syntax"},
		{multi, parts("qty=1")[:40], "body syntax"},
		{multi, parts("qty=1") + "x", "body syntax"},
		{multi, "--x\r\nContent-Disposition: form-data; name=qty--x--\r\n", "body syntax"},
		{multi, "--x\r\nContent-Disposition: form-data; name=qty\r\n--x--\r\n", "body syntax"},
		{multi, "--x\r\nContent-Disposition: attachment\r\n\r\n1\r\n--x--\r\n", "body syntax"},
		{multi, "--x--\r\n", "body required"},
		{multi, "", "body required"},
		{"Content-Type: multipart/form-data", parts("qty=1"), "body syntax"},
	} {
		r := request("x", strings.Split(c.headers, "|"), c.text)
		if got := summary(o.Check(r)); got != c.want {
			t.Errorf("%s: %.60s: got %q, want %q", c.headers, c.text, got, c.want)
		}
		want := WantAll
		switch {
		case c.text == "":
			want = WantNothing
		case strings.Contains(c.want, "content_type"), strings.HasPrefix(c.headers, "Content-Type: text"):
			want = WantFirst
		}
		if wants := o.Wants(r); wants != want {
			t.Errorf("%s: %.60s: got %d, want %d: the body only where it decides", c.headers, c.text, wants, want)
		}
	}
}

// Guarantee: a body that need not be there is checked as any other if it is: one of a media type that the document does not have, or
// without one, is refused, and so is any body of an operation that has none. A body without a byte is none.
func TestBodiesThatNeedNotBe(t *testing.T) {
	const none, optional = "responses: {}", "requestBody: {content: {application/json: {schema: {type: integer}}}}"
	for _, c := range []struct{ post, headers, text, want string }{
		{none, "", "", ""},
		{none, "Content-Type: application/json", "", ""},
		{none, "", "x", "body undeclared 415"},
		{none, "Content-Type: application/json", "{}", "body undeclared 415"},
		{optional, "", "", ""},
		{optional, "Content-Type: text/plain", "", ""},
		{optional, "Content-Type: application/json", "", ""},
		{optional, "Content-Type: application/json", "1", ""},
		{optional, "Content-Type: application/json", `"a"`, "body type"},
		{optional, "", `"a"`, "content_type media_type 415"},
		{optional, "Content-Type: ", `"a"`, "content_type media_type 415"},
		{optional, "Content-Type: text/plain", `"a"`, "content_type media_type 415"},
		{optional, "Content-Type: application/json, text/plain", `"a"`, "content_type media_type 415"},
		{optional, "Content-Type: application/json; charset=utf-8; charset=utf-16", `"a"`, "content_type media_type 415"},
	} {
		o := operation(t, "3.1", c.post)
		if got := summary(o.Check(request("x", strings.Split(c.headers, "|"), c.text))); got != c.want {
			t.Errorf("%s: %s: %q: got %q, want %q", c.post, c.headers, c.text, got, c.want)
		}
	}
}

// Guarantee: a number means what a service reads: one that IEEE 754 does not have is refused, and one that is rounded to an exclusive bound
// does not meet it.
func TestNumbersAsServicesReadThem(t *testing.T) {
	for _, c := range []struct{ schema, text, want string }{
		{"{type: number}", "1.7976931348623157e308", ""},
		{"{type: number}", "-1.7976931348623159e308", "body number"},
		{"{type: integer, minimum: 1}", "1e309", "body number"},
		{"{type: integer, minimum: 1}", "1e400", "body number"},
		{"{type: integer}", strings.Repeat("9", 310), "body number"},
		{"{exclusiveMinimum: 0}", "1e-300", ""},
		{"{exclusiveMinimum: 0}", "1e-400", "body exclusiveMinimum"},
		{"{exclusiveMaximum: 0}", "-1e-400", "body exclusiveMaximum"},
		{"{exclusiveMaximum: 10}", "9.999999999999999", ""},
		{"{exclusiveMaximum: 10}", "9.99999999999999999999", "body exclusiveMaximum"},
		{"{exclusiveMaximum: 9007199254740993}", "9007199254740992", ""},
		{"{type: integer}", "1.00000000000000000001", "body type"},
		{"{type: integer}", "1.0", ""},
		{"{type: integer}", "1e2", ""},
		{"{type: integer}", "-0", ""},
	} {
		o := operation(t, "3.1", "requestBody: {content: {application/json: {schema: "+c.schema+"}}}")
		if got := summary(o.Check(request("x", []string{"Content-Type: application/json"}, c.text))); got != c.want {
			t.Errorf("%s: %.40s: got %q, want %q", c.schema, c.text, got, c.want)
		}
	}
}

// Guarantee: a field of a form in the style deepObject has plain properties only, and no text beside them. A form in another charset, or
// with a name that some services read as another one, is refused.
func TestFields(t *testing.T) {
	o := operation(t, "3.1", "requestBody: {content: {application/x-www-form-urlencoded: {schema: {properties: {n: {type: object, properties: {a: {type: integer}}}}}, encoding: {n: {style: deepObject}}}}}")
	for _, c := range []struct{ text, want string }{
		{"n[a]=1", ""},
		{"n[a]=b", "body/n/a type"},
		{"n[a]=1&n=b", "body/n style"},
		{"n=b", "body/n style"},
		{"n[a][]=1", "body/n style"},
		{"n%5Ba%5D%5Bb%5D=1", "body/n style"},
		{"n[a=1", "body/n style"},
		{"m=1&_charset_=UTF-8", ""},
		{"m=1&_charset_=utf-7", "body charset 415"},
		{"m%00=1", "body encoding"},
	} {
		if got := summary(o.Check(request("x", []string{"Content-Type: application/x-www-form-urlencoded"}, c.text))); got != c.want {
			t.Errorf("%s: got %q, want %q", c.text, got, c.want)
		}
	}
}

// Guarantee: a multipart form that services read in different ways is refused.
func TestFormsThatAreNotClear(t *testing.T) {
	o := operation(t, "3.1", "requestBody: {content: {multipart/form-data: {schema: {type: object, required: [n], properties: {n: {type: integer}, s: {type: string}}}}}}")
	const end = "--x--\r\n"
	part := func(head, content string) string { return "--x\r\n" + head + "\r\n\r\n" + content + "\r\n" }
	const n = "Content-Disposition: form-data; name=\"n\""
	for name, c := range map[string]struct{ text, want string }{
		"a field":                 {part(n, "1") + end, ""},
		"a file beside it":        {part(n, "1") + part("Content-Disposition: form-data; name=s; filename*=UTF-8''a\r\nContent-Type: text/csv; charset=latin1", "\xff") + end, ""},
		"without the last line":   {part(n, "1") + "--x--", ""},
		"text before":             {"\r\n" + part(n, "1") + end, "body syntax"},
		"more text before":        {"--y\r\n" + n + "\r\n\r\na\r\n" + part(n, "1") + end, "body syntax"},
		"other ends of lines":     {strings.ReplaceAll(part(n, "1")+end, "\r\n", "\n"), "body syntax"},
		"spaces at the boundary":  {strings.Replace(part(n, "1"), "--x", "--x ", 1) + end, "body syntax"},
		"two dispositions":        {part(n+"\r\nContent-Disposition: form-data; name=s", "1") + end, "body syntax"},
		"two names":               {part(n+"; name=s", "1") + end, "body syntax"},
		"an encoded name":         {part("Content-Disposition: form-data; name*=UTF-8''n", "1") + end, "body syntax"},
		"two encoded names":       {part(n+"; Name*0=s", "1") + end, "body syntax"},
		"an escape":               {part(`Content-Disposition: form-data; name="n\"; name=s"`, "1") + end, "body syntax"},
		"a transfer encoding":     {part(n+"\r\nContent-Transfer-Encoding: base64", "1") + end, "body syntax"},
		"a plain one":             {part(n+"\r\nContent-Transfer-Encoding: 8BIT", "1") + end, ""},
		"a charset":               {part(n+"\r\nContent-Type: text/plain; charset=utf-16", "1") + end, "body syntax"},
		"UTF-8":                   {part(n+"\r\nContent-Type: text/plain; charset=utf-8", "1") + end, ""},
		"a file in place of it":   {part(n+"; filename=a", "1") + end, "body/n file"},
		"a form within the value": {part(n, "1\r\n--x--\r\n") + end, "body syntax"},
		"text behind":             {part(n, "1") + end + part(n, "a") + end, "body syntax"},
		"a part within a value":   {part("Content-Disposition: form-data; name=s", "a\n--x\n"+n+"\n\na") + part(n, "1") + end, "body syntax"},
		"one behind a line":       {part("Content-Disposition: form-data; name=s", "a--x\r\n"+n+"\r\n\r\na") + part(n, "1") + end, "body syntax"},
		"spaces within":           {part(n, "1") + strings.Replace(part("Content-Disposition: form-data; name=s", "a"), "--x", "--x \t", 1) + end, "body syntax"},
		"a name in a filename":    {part(n, "1") + part("Content-Disposition: form-data; name=s; filename=\"; name=n\"", "a") + end, "body syntax"},
		"a name in a parameter":   {part("Content-Disposition: form-data; a=\"; name=s\"; name=n", "1") + end, "body syntax"},
	} {
		got := summary(o.Check(request("x", []string{"Content-Type: multipart/form-data; boundary=x"}, c.text)))
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// Guarantee: a multipart form whose content type services may read another boundary from is refused.
func TestBoundariesThatAreNotClear(t *testing.T) {
	o := operation(t, "3.1", "requestBody: {content: {multipart/form-data: {schema: {type: object, required: [n], properties: {n: {type: integer}}}}}}")
	for _, c := range []struct{ parameters, delimiter, want string }{
		{"boundary=----WebKitFormBoundaryAbC", "----WebKitFormBoundaryAbC", ""},
		{"charset=utf-8; boundary=\"----=_Part_1\"", "----=_Part_1", ""},
		{"boundary=\"a\\=b\"", "a=b", "content_type media_type 415"},
		{"x=\"; boundary=y\"; boundary=a", "a", "content_type media_type 415"},
		{"boundary=\"a;b\"", "a;b", "body syntax"},
		{"boundary=\"boundary=a\"", "boundary=a", "body syntax"},
		{"boundary=\"a \"", "a ", "body syntax"},
		{"boundary=a; boundary*=utf-8''a", "a", "content_type media_type 415"},
		{"boundary=a; charset*=utf-8''utf-8; charset=utf-7", "a", "content_type media_type 415"},
		{"boundary=\"a; charset=utf-7\"", "a", "content_type media_type 415"},
		{"charset=\"\"; boundary=a", "a", ""},
		{"boundary=" + strings.Repeat("a", 71), strings.Repeat("a", 71), "body syntax"},
	} {
		text := "--" + c.delimiter + "\r\nContent-Disposition: form-data; name=n\r\n\r\n1\r\n--" + c.delimiter + "--\r\n"
		if got := summary(o.Check(request("x", []string{"Content-Type: multipart/form-data; " + c.parameters}, text))); got != c.want {
			t.Errorf("%s: got %q, want %q", c.parameters, got, c.want)
		}
	}
}

// Guarantee: a body in JSON or of a form is checked also if the document has a range of media types for it; in another format, or
// where the range stands for any bytes, it is not.
func TestRangesOfMediaTypes(t *testing.T) {
	for _, c := range []struct{ name, schema, contentType, text, want string }{
		{"*/*", "{type: object, required: [a]}", "application/json", `{"a": 1}`, ""},
		{"*/*", "{type: object, required: [a]}", "application/json", `{}`, "body required"},
		{"application/*", "{type: object, required: [a]}", "application/vnd.x+json", `{"a": 1, "a": 2}`, "body duplicate"},
		{"application/*", "{type: object, properties: {a: {type: integer}}}", "application/x-www-form-urlencoded", "a=b", "body/a type"},
		{"multipart/*", "{type: object, properties: {a: {type: integer}}}", "multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=a\r\n\r\nb\r\n--x--\r\n", "body/a type"},
		{"*/*", "{type: object, required: [a]}", "application/xml", `{}`, ""},
		{"*/*", "{type: object, required: [a]}", "application/json; charset=utf-16", `{}`, "content_type charset 415"},
		{"*/*", "{type: string, format: binary}", "application/json", `{}`, ""},
		{"image/*", "{type: object}", "image/png", `x`, ""},
		{"image/*", "{type: object}", "application/json", `{}`, "content_type media_type 415"},
	} {
		o := operation(t, "3.1", "requestBody: {content: {'"+c.name+"': {schema: "+c.schema+"}}}")
		if got := summary(o.Check(request("x", []string{"Content-Type: " + c.contentType}, c.text))); got != c.want {
			t.Errorf("%s %s: %s: %q: got %q, want %q", c.name, c.schema, c.contentType, c.text, got, c.want)
		}
	}
}

// Guarantee: a problem says in which part of the request it is, what the document says and where, and no value of the
// request.
func TestProblems(t *testing.T) {
	text := `openapi: 3.1.0
paths:
  /orders:
    post:
      parameters: [{in: query, name: limit, schema: {type: integer, maximum: 10.5}}]
      requestBody: {content: {application/json: {schema: {$ref: '#/components/schemas/a~1b%20c'}}}}
components:
  schemas:
    a/b c:
      properties: {qty: {minimum: 1}, kind: {anyOf: [{type: string, maxLength: 2}, {type: 'null'}]}}
`
	result := compileOne(t, text)
	if result.Operation == nil {
		t.Fatal(result.Reason)
	}
	got := result.Operation.Check(request("x?limit=4711", []string{"Content-Type: application/json"}, `{"qty": 0, "kind": "secret"}`))
	want := []Problem{
		{InQuery, "/limit", "/paths/~1orders/post/parameters/0/schema", "maximum", "must be ≤ 10.5", 400},
		{InBody, "/qty", "/components/schemas/a~1b c/properties/qty", "minimum", "must be ≥ 1", 400},
		{InBody, "/kind", "/components/schemas/a~1b c/properties/kind/anyOf/0", "maxLength", "must have at most 2 characters", 400},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%v, want\n%v", got, want)
	}
}

// Guarantee: schemas of OpenAPI 3.0 mean what OpenAPI 3.0 says: nullable, exclusive bounds that are booleans, and
// references without siblings.
func TestSchemasOfOpenAPI30(t *testing.T) {
	for _, c := range []struct{ version, schema, text, want string }{
		{"3.0", "{type: string, nullable: true}", "null", ""},
		{"3.0", "{type: string, nullable: true, enum: [a]}", "null", ""},
		{"3.1", "{type: string, nullable: true}", "null", "body type"},
		{"3.0", "{type: integer, minimum: 1, exclusiveMinimum: true}", "1", "body exclusiveMinimum"},
		{"3.0", "{type: integer, minimum: 1, exclusiveMinimum: false}", "1", ""},
		{"3.0", "{type: integer, maximum: 1, exclusiveMaximum: true}", "1", "body exclusiveMaximum"},
		{"3.0", "{$ref: '#/info/x-number', maximum: 0}", "1", ""},
		{"3.1", "{$ref: '#/info/x-number', maximum: 0}", "1", "body maximum"},
		{"3.0", "{type: object, required: [id, a], properties: {id: {type: string, readOnly: true}}}", "{}", "body required"},
		{"3.0", "{type: object, required: [id, a], properties: {id: {$ref: '#/info/x-read'}}}", `{"a": 1}`, ""},
		{"3.0", "{type: string, format: email}", `"x"`, ""},
	} {
		text := "openapi: " + c.version + ".0\ninfo: {x-number: {type: number}, x-read: {type: string, readOnly: true}}\npaths: {/a: {post: {requestBody: {content: {application/json: {schema: " + c.schema + "}}}}}}\n"
		result := compileOne(t, text)
		if result.Operation == nil {
			t.Errorf("%s: got unchecked: %s", c.schema, result.Reason)
			continue
		}
		if got := summary(result.Operation.Check(request("", []string{"Content-Type: application/json"}, c.text))); got != c.want {
			t.Errorf("%s %s: %s: got %q, want %q", c.version, c.schema, c.text, got, c.want)
		}
	}
}

// Guarantee: what is not supported leaves an operation unchecked, also through references, with the line of the reason;
// other operations are checked.
func TestUncheckedOperations(t *testing.T) {
	for _, c := range []struct{ post, want string }{
		{"requestBody: {content: {application/json: {schema: {pattern: '^(?!a)'}}}}", "line 5, column 68: the pattern has a lookahead"},
		{"requestBody: {content: {application/json: {schema: {items: {$ref: '#/components/schemas/a'}}}}}", "line 8, column 22: the pattern has a backreference"},
		{"parameters: [{in: query, name: n, schema: {$ref: '#/components/schemas/b'}}]", "line 8, column 22: the pattern has a backreference"},
		{"requestBody: {content: {application/json: {schema: {$ref: '#/components/schemas/c'}}}}", "refers to itself"},
		{"requestBody: {content: {application/json: {schema: {$ref: 'http://localhost:1/a.json'}}}}", "is in another document"},
		{"requestBody: {content: {application/json: {schema: {$ref: '#/components/schemas/none'}}}}", "the document has no"},
		{"requestBody: {content: {application/json: {schema: {$ref: '#/'}}}}", "the document has no"},
		{"requestBody: {content: {application/json: {schema: {$ref: '#a'}}}}", "is a reference that is not supported"},
		{"requestBody: {content: {application/json: {schema: {$id: 'http://a/'}}}}", "$id in a schema is not supported"},
		{"requestBody: {content: {application/json: {schema: {$dynamicRef: '#a'}}}}", "$dynamicRef in a schema is not supported"},
		{"requestBody: {content: {application/json: {schema: {$schema: 'http://json-schema.org/draft-07/schema#'}}}}", "use JSON Schema 2020-12"},
		{"requestBody: {content: {application/json: {schema: {type: strin}}}}", "is not a schema of JSON Schema 2020-12: see \"type\""},
		{"requestBody: {content: {application/json: {schema: {minimum: 0." + strings.Repeat("1", 450) + "}}}}", "too large or too precise"},
		{"requestBody: {content: {application/json: {schema: {minLength: 99999999999999999999}}}}", "at most 2^53"},
		{"requestBody: {content: {application/json: {schema: {enum: [0." + strings.Repeat("1", 450) + "]}}}}", "too large or too precise"},
		{"requestBody: {content: {application/json: {schema: [a]}}}", "a schema must be a mapping, not a list"},
		{"requestBody: {content: {application/jsonl: {itemSchema: {}}}}", "itemSchema is not supported"},
		{"requestBody: {content: {}}", "must have content"},
		{"parameters: [{in: querystring, name: n, content: {}}]", "in \"querystring\" is not supported"},
		{"parameters: [{in: query, name: n, style: simple, schema: {}}]", "the style \"simple\""},
		{"parameters: [{in: query, name: n}]", "neither schema nor content"},
		{"parameters: [{in: query, name: n, style: deepObject, schema: {properties: {a: {type: array}}}}]", "deepObject, which is not defined"},
		{"requestBody: {content: {application/json; v=1: {schema: {type: object}}, Application/JSON; v=2: {schema: {type: array}}}}", "several media types"},
		{"requestBody: {content: {application/x-www-form-urlencoded: {schema: {properties: {n: {properties: {a: {type: object}}}}}, encoding: {n: {style: deepObject}}}}}", "the field \"n\" has the style deepObject"},
		{"parameters: {a: b}", "must be a list"},
	} {
		text := "openapi: 3.1.0\npaths:\n  /a:\n    post:\n      " + c.post + "\n    get: {}\ncomponents: {schemas: {\n  a: {not: {pattern: '(a)\\1'}},\n  b: {anyOf: [{items: {$ref: '#/components/schemas/a'}}]},\n  c: {allOf: [{$ref: '#/components/schemas/c'}]}}}\n"
		root, minor, list := sources(t, []byte(text))
		results := Compile(root, minor, list, nil)
		if results[0].Operation != nil || !strings.Contains(results[0].Reason, c.want) || !strings.HasPrefix(results[0].Reason, "line ") && !strings.Contains(c.want, "deepObject") {
			t.Errorf("%s: got %q, want %q", c.post, results[0].Reason, c.want)
		}
		if results[1].Operation == nil {
			t.Errorf("%s: got %q, want the other operation to be checked", c.post, results[1].Reason)
		}
	}
}

// Guarantee: schemas that refer to each other through properties and items are checked at every level, and a parameter of
// an operation takes precedence over that of its path item.
func TestReferences(t *testing.T) {
	result := compileOne(t, `openapi: 3.1.0
paths:
  /a:
    parameters: [{in: query, name: n, schema: {type: boolean}}, {$ref: '#/components/parameters/m'}]
    post:
      parameters: [{in: query, name: n, schema: {type: integer}}]
      requestBody: {$ref: '#/components/requestBodies/tree'}
components:
  parameters: {m: {in: query, name: m, required: true, schema: {type: integer}}}
  requestBodies: {tree: {content: {application/json: {schema: {$ref: '#/components/schemas/tree'}}}}}
  schemas:
    tree: {type: object, properties: {left: {$ref: '#/components/schemas/tree'}, all: {$ref: '#/components/schemas/all'}}, additionalProperties: false}
    all: {type: array, items: {$ref: '#/components/schemas/tree'}}
`)
	if result.Operation == nil {
		t.Fatal(result.Reason)
	}
	got := summary(result.Operation.Check(request("?n=true", []string{"Content-Type: application/json"}, `{"left": {"all": [{}, {"left": {"x": 1}}]}}`)))
	if want := "query/n type, query/m required, body/left/all/1/left/x false"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Guarantee: a compilation whose time is over leaves the rest unchecked, and says so.
func TestExpiredCompilation(t *testing.T) {
	text := "openapi: 3.1.0\npaths:\n"
	for i := range 5 {
		text += fmt.Sprintf("  /a%d: {post: {requestBody: {content: {application/json: {schema: {type: object}}}}}}\n", i)
	}
	root, err := document.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	_, minor, list := sources(t, []byte(text))
	left := 3
	results := Compile(root, minor, list, func() bool { left--; return left < 0 })
	for i, r := range results {
		if checked := r.Operation != nil; checked != (i < 3) || !checked && !strings.Contains(r.Reason, "takes too long") {
			t.Errorf("operation %d: got %+v, want the first three checked", i, r)
		}
	}
}

// Guarantee: the head of a part of a multipart form has lines that all services read in the same way: they end with CRLF, none goes on in the
// next one, and the name is not in single quotes.
func TestHeadsOfParts(t *testing.T) {
	o := operation(t, "3.1", "requestBody: {content: {multipart/form-data: {schema: {type: object, properties: {n: {type: integer}, s: {type: string}}}}}}")
	const s, n = `Content-Disposition: form-data; name="s"`, `Content-Disposition: form-data; name="n"`
	for head, want := range map[string]string{
		s:                                  "",
		s + "\r\nContent-Type: text/plain": "",
		n:                                  "body/n type",
		"X: y\n" + s + "\n\nX: y\r\n" + n:  "body syntax",
		s + "\n\nX: y\r\n" + n:             "body syntax",
		s + "\nX: y":                       "body syntax",
		s + "\rX: y":                       "body syntax",
		"X: y\r\n " + n + "\r\n" + s:       "body syntax",
		"X: y\r\n\t" + n + "\r\n" + s:      "body syntax",
		s + "\r\nX: \x00":                  "body syntax",
		strings.ReplaceAll(n, `"`, "'"):    "body syntax",
	} {
		text := "--x\r\n" + head + "\r\n\r\na\r\n--x--\r\n"
		if got := summary(o.Check(request("x", []string{"Content-Type: multipart/form-data; boundary=x"}, text))); got != want {
			t.Errorf("%q: got %q, want %q", head, got, want)
		}
	}
}

// Guarantee: a field of a multipart form that the document says is in JSON is held against its schema as that, also if it is an array, in one
// part or in one for each item.
func TestPartsInJSON(t *testing.T) {
	o := operation(t, "3.1", `requestBody: {content: {multipart/form-data: {schema: {type: object, properties: {
a: {type: array, maxItems: 2, items: {type: string}}, b: {type: array, items: {type: object, required: [c]}}, s: {type: string, maxLength: 3}}},
encoding: {a: {contentType: application/json}, b: {contentType: application/json}, s: {contentType: application/json}}}}}`)
	for _, c := range []struct {
		name  string
		texts []string
		want  string
	}{
		{"a", []string{`["x","y"]`}, ""},
		{"a", []string{`["x","y","z"]`}, "body/a maxItems"},
		{"a", []string{`[1]`}, "body/a/0 type"},
		{"a", []string{`"x"`}, ""},
		{"a", []string{`"x"`, `"y"`}, ""},
		{"a", []string{`"x"`, `"y"`, `"z"`}, "body/a maxItems"},
		{"a", []string{`x`}, "body/a syntax"},
		{"b", []string{`{"c":1}`, `{"c":2}`}, ""},
		{"b", []string{`{"c":1}`, `{}`}, "body/b/1 required"},
		{"s", []string{`{}`}, ""},
		{"s", []string{`{"c"}`}, "body/s maxLength"},
	} {
		var text strings.Builder
		for _, one := range c.texts {
			text.WriteString("--x\r\nContent-Disposition: form-data; name=\"" + c.name + "\"\r\n\r\n" + one + "\r\n")
		}
		got := summary(o.Check(request("x", []string{"Content-Type: multipart/form-data; boundary=x"}, text.String()+"--x--\r\n")))
		if got != c.want {
			t.Errorf("%s %q: got %q, want %q", c.name, c.texts, got, c.want)
		}
	}
}

// Guarantee: names in the query that belong to no other parameter are properties of an object that takes any name, as in the example of a
// free-form parameter that OpenAPI has, and meet its schema for them.
func TestFreeFormParameters(t *testing.T) {
	o := operation(t, "3.1", `parameters:
- {in: query, name: free, schema: {type: object, additionalProperties: {type: integer, minimum: 1}}}
- {in: query, name: page, schema: {type: object, properties: {after: {type: string}}}}
- {in: query, name: of, style: deepObject, schema: {type: object, additionalProperties: {type: integer}}}
- {in: query, name: q, schema: {type: string}}`)
	for query, want := range map[string]string{
		"":                                "",
		"a=1&b=2":                         "",
		"a=0":                             "query/free/a minimum",
		"%61=x":                           "query/free/a type",
		"a=1&a=2":                         "query/free duplicate",
		"free=x":                          "query/free/free type",
		"after=x&q=y&of[z]=3&of%5By%5D=3": "",
		"of[z]=x":                         "query/of/z type",
	} {
		if got := summary(o.Check(request("x?"+query, nil, ""))); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
}

// Guarantee: a media type that refers to one of the components (OpenAPI 3.2) is that, of a body and of a parameter.
func TestReferencesToMediaTypes(t *testing.T) {
	result := compileOne(t, `openapi: 3.2.0
paths:
  /a/{p}:
    post:
      parameters: [{in: query, name: n, content: {application/json: {$ref: "#/components/mediaTypes/n"}}}]
      requestBody: {content: {application/json: {$ref: "#/components/mediaTypes/n"}}}
components: {mediaTypes: {n: {schema: {type: integer}}}}
`)
	if result.Operation == nil {
		t.Fatal(result.Reason)
	}
	got := result.Operation.Check(request(`x?n="a"`, []string{"Content-Type: application/json"}, `"a"`))
	if text := summary(got); text != "query/n type, body type" || got[1].Schema != "/components/mediaTypes/n/schema" {
		t.Errorf("got %q at %q, want two problems with the type", text, got[1].Schema)
	}
}
