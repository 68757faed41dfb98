package validate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
)

// within fails the test if f takes more CPU time than most.
func within(t *testing.T, most time.Duration, what string, f func()) {
	t.Helper()
	start := proctest.CPUTime(t)
	f()
	took := proctest.CPUTime(t) - start
	if took > most {
		t.Errorf("%s took %s of CPU time, want at most %s", what, took, most)
	}
	t.Logf("%s took %s of CPU time", what, took)
}

// jsonDocument returns a document of OpenAPI 3.1 whose operation has a JSON body of a schema.
func jsonDocument(schema, components string) string {
	return `{"openapi": "3.1.0", "paths": {"/a": {"post": {"requestBody": {"content": {"application/json": {"schema": ` + schema +
		`}}}}}}, "components": {"schemas": {` + components + `}}}`
}

func repeat(n int, separator string, one func(i int) string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = one(i)
	}
	return strings.Join(list, separator)
}

// Guarantee: a document that is made to be slow is compiled in bounded time, or leaves its operation unchecked.
func TestHostileDocuments(t *testing.T) {
	nested := func(n int, before, after string) string {
		return strings.Repeat(before, n) + "{}" + strings.Repeat(after, n)
	}
	for name, c := range map[string]struct {
		text, want string // of the reason
	}{
		"many properties":   {jsonDocument(`{"properties": {`+repeat(1900, ",", func(i int) string { return fmt.Sprintf(`"p%d": {"type": "string"}`, i) })+`}}`, ""), ""},
		"too many of them":  {jsonDocument(`{"properties": {`+repeat(100_000, ",", func(i int) string { return fmt.Sprintf(`"p%d": {}`, i) })+`}}`, ""), "more than 2000"},
		"a deep schema":     {jsonDocument(nested(255, `{"items": `, `}`), ""), ""},
		"too deep a schema": {jsonDocument(nested(300, `{"items": `, `}`), ""), "deeper than 256"},
		"a chain of parts":  {jsonDocument(`{"$ref": "#/components/schemas/s0"}`, repeat(1000, ",", func(i int) string { return fmt.Sprintf(`"s%d": {"$ref": "#/components/schemas/s%d"}`, i, i+1) })+`, "s1000": {}`), ""},
		"too long a chain":  {jsonDocument(`{"$ref": "#/components/schemas/s0"}`, repeat(9000, ",", func(i int) string { return fmt.Sprintf(`"s%d": {"$ref": "#/components/schemas/s%d"}`, i, i+1) })+`, "s9000": {}`), "follow one another"},
		"too many schemas": {jsonDocument(`{"$ref": "#/components/schemas/s0"}`, repeat(60, ",", func(i int) string {
			return fmt.Sprintf(`"s%d": {"items": {"$ref": "#/components/schemas/s%d"}, "properties": {%s}}`, i, (i+1)%60, repeat(1800, ",", func(j int) string { return fmt.Sprintf(`"p%d": {}`, j) }))
		})), "more than 100000 schemas"},
		"large patterns": {jsonDocument(`{"$ref": "#/components/schemas/s0"}`, repeat(200, ",", func(i int) string {
			return fmt.Sprintf(`"s%d": {"pattern": "%d(abcd){600}", "items": {"$ref": "#/components/schemas/s%d"}}`, i, i, (i+1)%200)
		})), "too many or too large"},
		"references in rows": {jsonDocument(`{"allOf": [`+repeat(1500, ",", func(int) string { return `{"$ref": "#/components/schemas/s0"}` })+`]}`, `"s0": {"allOf": [`+repeat(1500, ",", func(int) string { return `{"$ref": "#/components/schemas/s1"}` })+`]}, "s1": {"type": "string"}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			root, minor, list := sources(t, []byte(c.text))
			within(t, time.Minute, "compiling", func() {
				result := Compile(root, minor, list, nil)[0]
				if checked := result.Operation != nil; checked != (c.want == "") || !strings.Contains(result.Reason, c.want) {
					t.Errorf("got %q, want %q", result.Reason, c.want)
				}
			})
		})
	}
}

// Guarantee: a schema and a body that are made to be slow together are checked in bounded time. A check that would take
// longer is a problem with the rule bound.
func TestHostileChecks(t *testing.T) {
	double := func(part string) string {
		return repeat(64, ",", func(i int) string {
			ref := fmt.Sprintf(`{"$ref": "#/components/schemas/s%d"}`, i+1)
			return fmt.Sprintf(`"s%d": %s`, i, strings.ReplaceAll(part, "REF", ref))
		}) + `, "s64": {"type": "string"}`
	}
	const first = `{"$ref": "#/components/schemas/s0"}`
	full := func(before, one, after string) string {
		return before + strings.Repeat(one, (MaxBody-len(before)-len(after))/len(one)) + after
	}
	for name, c := range map[string]struct{ text, body, want string }{
		"two by two":        {jsonDocument(first, double(`{"allOf": [REF, REF]}`)), `"a"`, "body bound"},
		"alternatives":      {jsonDocument(first, double(`{"anyOf": [REF, REF]}`)), `5`, "body bound"},
		"one of many":       {jsonDocument(first, double(`{"oneOf": [REF, REF]}`)), `5`, "body bound"},
		"not":               {jsonDocument(first, double(`{"not": {"anyOf": [REF, REF]}}`)), `5`, "body bound"},
		"conditions":        {jsonDocument(first, double(`{"if": REF, "then": REF, "else": REF}`)), `5`, "body bound"},
		"nested twice":      {jsonDocument(first, `"s0": {"allOf": [{"items": {"$ref": "#/components/schemas/s0"}}, {"items": {"$ref": "#/components/schemas/s0"}}]}`), strings.Repeat("[", 200) + strings.Repeat("]", 200), "body bound"},
		"slow patterns":     {jsonDocument(`{"pattern": "(a|aa){1,600}$"}`, ""), `"` + strings.Repeat("a", MaxBody-100) + `b"`, "body bound"},
		"patterns of names": {jsonDocument(`{"patternProperties": {`+repeat(500, ",", func(i int) string { return fmt.Sprintf(`"%d(a|aa)+$": {}`, i) })+`}}`, ""), "{" + repeat(50_000, ",", func(i int) string { return fmt.Sprintf(`"aaaa%d":1`, i) }) + "}", "body bound"},
		"unique strings":    {jsonDocument(`{"uniqueItems": true}`, ""), "[" + repeat(90_000, ",", func(i int) string { return fmt.Sprintf(`"%d"`, i) }) + "]", ""},
		"unique lists that hash": {jsonDocument(`{"uniqueItems": true}`, ""), "[" + repeat(4000, ",", func(i int) string {
			return `["` + strings.Repeat(`x\u0004`, i%30) + `","` + strings.Repeat(`x\u0004`, 30-i%30) + `"]`
		}) + "]", "body uniqueItems"},
		"unevaluated": {jsonDocument(`{"allOf": [`+repeat(1000, ",", func(int) string { return `{"unevaluatedItems": true}` })+`]}`, ""), full("[", "0,", "0]"), "body bound"},
		"unevaluated beside many": {jsonDocument(`{"unevaluatedItems": true, "allOf": [`+repeat(1900, ",", func(int) string { return `{"$ref": "#/components/schemas/s0"}` })+`]}`,
			`"s0": {"anyOf": [`+repeat(1900, ",", func(int) string { return "true" })+`]}`), full("[", "0,", "0]"), "body bound"},
		"conditions that apply": {jsonDocument(`{"unevaluatedItems": true, "allOf": [`+repeat(1900, ",", func(int) string { return `{"$ref": "#/components/schemas/s0"}` })+`]}`,
			`"s0": {"if": true, "then": true}`), full("[", "0,", "0]"), "body bound"},
		"multiples": {jsonDocument(`{"items": {"allOf": [`+repeat(1900, ",", func(i int) string { return fmt.Sprintf(`{"multipleOf": 1e-%d}`, 300+i%90) })+`]}}`, ""),
			full("[", "7.3e-200,", "1]"), "body bound"},
		"numbers":     {jsonDocument(`{"items": {"multipleOf": 0.0001, "enum": [1e300]}}`, ""), full("[", "1e300,", "1e300]"), "body bound"},
		"a number":    {jsonDocument(`{}`, ""), full("", "9", ""), "body number"},
		"small items": {jsonDocument(`{"items": {"type": ["integer", "string"]}}`, ""), full("[", "0,", "0]"), ""},
		"members":     {jsonDocument(`{"additionalProperties": {"type": "integer"}}`, ""), "{" + repeat(90_000, ",", func(i int) string { return fmt.Sprintf(`"%d":1`, i) }) + "}", ""},
		"wrong items": {jsonDocument(`{"items": {"type": "string"}}`, ""), full("[", "0,", "0]"), "body/0 type, body/1 type, body/2 type, body/3 type, body/4 type, body/5 type, body/6 type, body/7 type, body/8 type, body/9 type"},
		"long names":  {jsonDocument(`{"additionalProperties": false}`, ""), `{"` + strings.Repeat("a", MaxBody-10) + `": 1}`, "body/" + strings.Repeat("a", maxPointer-1) + "… false"},
	} {
		t.Run(name, func(t *testing.T) {
			result := compileOne(t, c.text)
			if result.Operation == nil {
				t.Fatal(result.Reason)
			}
			within(t, time.Minute, "the check", func() {
				if got := summary(result.Operation.Check(request("", []string{"Content-Type: application/json"}, c.body))); got != c.want {
					t.Errorf("got %.300q, want %q", got, c.want)
				}
			})
		})
	}
}

// Guarantee: many parameters whose schemas name many properties, or refer to many that do, are compiled and checked in bounded time.
func TestHostileParameters(t *testing.T) {
	components := `"s0": {"type": "object", "allOf": [` + repeat(150, ",", func(int) string { return `{"$ref": "#/components/schemas/s1"}` }) + `]}, "s1": {"properties": {` +
		repeat(1900, ",", func(i int) string { return fmt.Sprintf(`"p%d": {"type": "string"}`, i) }) + `}}`
	for style, want := range map[string]string{"form": "query bound", "deepObject": ""} {
		text := `{"openapi": "3.1.0", "paths": {"/a": {"get": {"parameters": [` + repeat(1000, ",", func(i int) string {
			return fmt.Sprintf(`{"in": "query", "name": "n%d", "style": %q, "explode": true, "schema": {"$ref": "#/components/schemas/s0"}}`, i, style)
		}) + `]}}}, "components": {"schemas": {` + components + `}}}`
		within(t, time.Minute/6, "compiling and checking "+style, func() {
			result := compileOne(t, text)
			switch {
			case want == "" && !strings.Contains(result.Reason, "too many properties"):
				t.Errorf("got %q, want too many properties", result.Reason)
			case want != "":
				query := "?" + repeat(200, "&", func(i int) string { return fmt.Sprintf("a%d=1", i) })
				if got := summary(result.Operation.Check(request(query, nil, ""))); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
		})
	}
}

// FuzzCheck looks for a schema and a body with which compiling or checking panics, or that package jsonschema judges
// otherwise.
func FuzzCheck(f *testing.F) {
	_, files := suite(f)
	for _, groups := range files {
		for _, g := range groups {
			if object, ok := g.Schema.(map[string]any); ok {
				delete(object, "$schema")
			}
			text, err := json.Marshal(g.Schema)
			if err != nil {
				f.Fatal(err)
			}
			for _, c := range g.Tests {
				f.Add(string(text), string(c.Data))
			}
		}
	}
	f.Fuzz(func(t *testing.T, schemaText, body string) {
		var raw any
		dec := json.NewDecoder(strings.NewReader(schemaText))
		dec.UseNumber()
		if body == "" || len(schemaText) > 2000 || len(body) > 2000 || dec.Decode(&raw) != nil || dec.More() || strings.Contains(schemaText, "$id") || strings.Contains(schemaText, "$schema") {
			return
		}
		text := jsonDocument(schemaText, `"a": `+schemaText)
		if _, err := document.Parse([]byte(text)); err != nil {
			return
		}
		root, minor, list := sources(t, []byte(text))
		result := Compile(root, minor, list, nil)[0]
		if result.Operation == nil {
			return
		}
		problems := result.Operation.Check(request("", []string{"Content-Type: application/json"}, body))
		if strings.Contains(schemaText, "exclusive") && len(body) > 15 {
			return // a number that is read as the bound is refused here
		}
		if strings.Contains(schemaText, "$ref") || strings.Contains(schemaText, "readOnly") || strings.Contains(schemaText, "dependencies") {
			return // references are in the document; the others have no equivalent
		}
		v, err := parseJSON([]byte(body))
		if err != nil {
			if len(problems) != 1 {
				t.Fatalf("got %v, want a problem for %v", problems, err)
			}
			return
		}
		c := jsonschema.NewCompiler()
		c.UseRegexpEngine(patterns{}.engine)
		c.UseLoader(noLoader{})
		var instance any
		dec = json.NewDecoder(strings.NewReader(body))
		dec.UseNumber()
		if c.AddResource("keygate:/a", raw) != nil || dec.Decode(&instance) != nil {
			return
		}
		compiled, err := c.Compile("keygate:/a")
		if err != nil {
			return
		}
		if valid := compiled.Validate(instance) == nil; valid != (len(problems) == 0) {
			t.Fatalf("got %v for %+v, want valid %t as of package jsonschema", problems, v, valid)
		}
	})
}

// FuzzRequest looks for a request with which a check panics, finds too many problems, or one without a rule.
func FuzzRequest(f *testing.F) {
	o := operation(f, "3.1", `
parameters:
- {in: query, name: a, schema: {type: [integer, string, array, object], items: {type: number}, properties: {b: {type: boolean}}}}
- {in: query, name: d, style: deepObject, schema: {type: object, properties: {b: {type: integer}}, additionalProperties: false}}
- {in: query, name: s, style: spaceDelimited, explode: false, schema: {type: array, items: {type: 'null'}}}
- {in: query, name: j, content: {application/json: {schema: {type: object}}}}
- {in: path, name: p, required: true, style: matrix, explode: true, schema: {type: [object, array, integer]}}
- {in: header, name: X-A, schema: {type: array, items: {type: integer}}}
- {in: cookie, name: c, schema: {type: object, properties: {a: {type: integer}}}}
requestBody:
  content:
    application/json: {schema: {type: object}}
    application/x-www-form-urlencoded: {schema: {properties: {a: {type: integer}, o: {type: object}, l: {type: array}}}, encoding: {o: {style: deepObject}}}
    multipart/form-data: {schema: {properties: {a: {type: integer}, o: {type: object}, l: {type: array}}}}
`)
	f.Add(";p=1?a=1&d[b]=2&s=1%202&j={}", "1, 2", "c=a,1", "application/json", `{"a": 1}`)
	f.Add(";a=1?a=b&b=true", "", "c=%", "application/x-www-form-urlencoded", "a=1&o[x]=2&l=3")
	f.Add("", "", "", "multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--\r\n")
	f.Fuzz(func(t *testing.T, target, header, cookie, contentType, body string) {
		r := request(target, []string{"X-A: " + header, "Cookie: " + cookie, "Content-Type: " + contentType}, body)
		problems := o.Check(r)
		if len(problems) > MaxProblems {
			t.Fatalf("got %d problems, want at most %d", len(problems), MaxProblems)
		}
		for _, p := range problems {
			if p.Rule == "" || p.In == "" || p.Message == "" || p.Status == 0 || len(p.Pointer) > 260 {
				t.Fatalf("got %+v, want each field set and a short pointer", p)
			}
		}
	})
}

// BenchmarkCheck checks a body of 1 KB, for which 100 µs is the target (edge.md, section 6).
func BenchmarkCheck(b *testing.B) {
	o := operation(b, "3.1", `
parameters: [{in: query, name: dry_run, schema: {type: boolean}}]
requestBody:
  content:
    application/json:
      schema:
        type: object
        required: [customer, items]
        properties:
          customer: {type: string, pattern: '^[a-z0-9_]{3,40}$'}
          currency: {enum: [EUR, USD, GBP]}
          items:
            type: array
            minItems: 1
            items:
              type: object
              required: [sku, qty]
              properties: {sku: {type: string, maxLength: 40}, qty: {type: integer, minimum: 1}, price: {type: number, multipleOf: 0.01}}
              additionalProperties: false
        additionalProperties: false
`)
	body := `{"customer": "cus_123456", "currency": "EUR", "items": [` + repeat(20, ", ", func(i int) string { return fmt.Sprintf(`{"sku": "sku-%d", "qty": %d, "price": 12.50}`, i, i+1) }) + `]}`
	r := request("x?dry_run=true", []string{"Content-Type: application/json"}, body)
	if problems := o.Check(r); len(problems) > 0 || len(body) < 900 {
		b.Fatalf("got %v, want a valid body of 1 KB", problems)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		o.Check(r)
	}
}
