package openapi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/openapi"
)

// Guarantee: if Keygate reads a part of a document otherwise than its author means it, or not at all, a
// warning says what to write.
func TestFormsThatMeanSomethingElseAreWarnedOf(t *testing.T) {
	const paths = "paths: {/a: {get: {}}}\n"
	for name, c := range map[string]struct{ text, base, want string }{
		"any method of Amazon":       {"paths:\n  /a: {x-amazon-apigateway-any-method: {}, get: {}}\n", "", "an operation for each method"},
		"a greedy parameter":         {"paths:\n  '/{proxy+}': {get: {}}\n", "", "end the path in /*"},
		"a parameter of Express":     {"paths:\n  '/a/:id': {get: {}}\n", "", "write {name} for a parameter"},
		"a pattern":                  {"paths:\n  '/a/{id:[0-9]+}': {get: {}}\n", "", "write {name}, which matches every segment"},
		"an operation in upper case": {"paths:\n  /a: {GET: {}, get: {}}\n", "", "is not an operation of OpenAPI 3.1: write get"},
		"a method for all":           {"paths:\n  /a: {any: {}, get: {}}\n", "", "an operation for each method"},
		"a limit without keys":       {"paths:\n  /a: {get: {x-keygate-auth: none, x-keygate-rate-limit: {sustained: 1/s, per: key}}}\n", "", "have no key: they share the limit"},
		"fields of Swagger":          {"basePath: /v1\n" + paths, "", "write the address in servers"},
		"a relative server":          {"servers: [{url: v1}]\n" + paths, "/v1", `it is read as "/v1/"`},
		"a relative server with ..":  {"servers: [{url: ../v1/}]\n" + paths, "/v1", `it is read as "/v1/"`},
		"a server with a query":      {"servers: [{url: 'https://a.example/v1?x=y'}]\n" + paths, "/v1", "is ignored"},
		"a server with a fragment":   {"servers: [{url: '/v1#x'}]\n" + paths, "/v1", "is ignored"},
		"a server with a version":    {"servers: [{url: 'https://a.example/{v}', variables: {v: {default: v1, enum: [v1, v2]}}}]\n" + paths, "/v1", "of which only the default is used"},
		"a server with a region":     {"servers: [{url: 'https://{r}.a.example/v1', variables: {r: {default: eu, enum: [eu, us]}}}]\n" + paths, "/v1", ""},
		"a server with a slash":      {"servers: [{url: 'https://a.example/v1/'}]\n" + paths, "/v1", ""},
		"a server without a scheme":  {"servers: [{url: //a.example/v1}]\n" + paths, "/v1", ""},
		"a path":                     {"servers: [{url: /v1}]\n" + paths, "/v1", ""},
		"the root":                   {"servers: [{url: /}]\n" + paths, "", ""},
		"no path":                    {"servers: [{url: 'https://a.example'}]\n" + paths, "", ""},
	} {
		d, err := openapi.Parse([]byte("openapi: 3.1.0\n" + c.text))
		if err != nil {
			t.Errorf("%s: got %v, want it taken", name, err)
			continue
		}
		got := strings.Join(d.Warnings("http://upstream"), "\n")
		if d.BasePath != c.base || c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: got the base path %q and warnings %q, want %q and %q", name, d.BasePath, got, c.base, c.want)
		}
	}
}

// Guarantee: a server whose URL would be read as a path, or is not a URL, is rejected, and the error says
// what to write.
func TestServersWithoutSchemeAreRejected(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"api.example.com/v1", "write https:// before a host"},
		{"api.example.com", "write https:// before a host"},
		{"localhost/v1", "write https:// before a host"},
		{"localhost:8080/v1", "write https:// before a host"},
		{"https://a.example/v1 ", "remove the space around it"},
		{"“https://a.example/v1”", "a typographic quote"},
		{"https://a.example/v1/{v", "has a { without a }"},
		{" https://a.example/v1", "remove the space around it"},
	} {
		_, err := openapi.Parse([]byte("openapi: 3.1.0\nservers: [{url: '" + c.url + "'}]\npaths: {/a: {get: {}}}\n"))
		problems := fault.ProblemsOf(err)
		if len(problems) != 1 || problems[0].Field != "servers[0].url" || problems[0].Line != 2 || !strings.Contains(problems[0].Message, c.want) {
			t.Errorf("%q: got %+v, want one problem in line 2 with %q", c.url, problems, c.want)
		}
	}
}

// Guarantee: an invalid extension hides no other mistake of its operation, and none of other
// operations of its path.
func TestAllMistakesOfOperationsAreReported(t *testing.T) {
	_, err := openapi.Parse([]byte(head + `  /a//b:
    x-keygate-auth: open
    get: {x-keygate-auth: maybe, x-keygate-rate-limit: {burst: 1/x, daily: 1/s}}
    post: {x-keygate-limit: 1/s}
  a: {get: {}}
  /c: {get: {x_keygate_auth: none}}
  /d/{x}: {get: {x-keygate-auth: open}}
  /d/{y}: {get: {}}
`))
	var got []string
	for _, p := range fault.ProblemsOf(err) {
		got = append(got, strings.TrimPrefix(p.Field, "paths."))
	}
	want := []string{
		"/a//b", "/a//b.x-keygate-auth", "/a//b.get.x-keygate-auth", "/a//b.get.x-keygate-rate-limit.burst", "/a//b.get.x-keygate-rate-limit.daily", "/a//b.post.x-keygate-limit",
		"a", "/c.get.x_keygate_auth", "/d/{x}.get.x-keygate-auth",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got problems of\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
