package gateway_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// Guarantee: only values with a variable change, and every line keeps its number.
func TestResolveEnv(t *testing.T) {
	lookup := environment("HOST", "orders.internal", "N", "50", "E", "", "Q", `a"b\c'd`+"\n€", "M", "${env:HOST}")
	for _, c := range []struct{ text, want string }{
		{"a: b # ${env:NOT}\n", "a: b # ${env:NOT}\n"},
		{"# ${env:NOT}\na: 'https://${env:HOST}/x' # c\nb: ${env:HOST}\nc: \"${env:N}/s\"\n", "# ${env:NOT}\na: \"https://orders.internal/x\" # c\nb: \"orders.internal\"\nc: \"50/s\"\n"},
		{"a: {b: '${env:N}/s', c: \"é\\t${env:N}\", d: x}\r\ne: it${env:N}\r\n", "a: {b: \"50/s\", c: \"é\\u0009" + "50\", d: x}\r\ne: \"it50\"\r\n"},
		{"- ${env:E}\n- &x ${env:N}\n- !!str ${env:N}\n- *x\n", "- \"\"\n- &x \"50\"\n- !!str \"50\"\n- *x\n"},
		{`{"a": "\u0024{env:N}/${env:N}"}`, `{"a": "50/50"}`},
		{"a: ${env:Q}\n", `a: "a\"b\\c'd\u000a€"` + "\n"},
		{"a: 'it''s ${env:N}'\n", "a: \"it's 50\"\n"},
		{"a: ${env:M}\n", "a: \"${env:HOST}\"\n"},
	} {
		got, err := gateway.ResolveEnv([]byte(c.text), lookup)
		if err != nil || string(got) != c.want {
			t.Errorf("%q:\n got %q, %v\nwant %q", c.text, got, err, c.want)
		}
	}
}

// Guarantee: a variable that cannot be replaced is rejected with its position and field.
func TestInvalidVariablesAreRejected(t *testing.T) {
	for _, c := range []struct{ text, position, field, message string }{
		{"a: 1\nb:\n  - x\n  - ${env:NOT}\n", "4, column 5", "b[1]", "NOT is not set"},
		{"a: ${env:BAD}\n", "1, column 4", "a", "UTF-8"},
		{"a: ${env:A-B}\n", "1, column 4", "a", "${env:NAME}"},
		{"a: ${env:A\n", "1, column 4", "a", "${env:NAME}"},
		{"${env:A}: a\n", "1, column 1", "${env:A}", "not in names"},
		{"a: |\n  ${env:A}\n", "1, column 4", "a", "one line"},
		{"a: b\n  ${env:A}\n", "1, column 4", "a", "one line"},
		{"a: \"b\n  ${env:A}\"\n", "1, column 4", "a", "one line"},
		{"a: [${env:A}]\n", "1, column 6", "", "in quotes"},
	} {
		_, err := gateway.ResolveEnv([]byte(c.text), environment("A", "x", "BAD", "\xff"))
		wantProblem(t, c.text, err, c.position, c.field, c.message)
	}
}

// Guarantee: the value of a variable becomes the text of one value, whatever it is, and cannot
// add anything else to the document.
func TestResolveEnvInjectsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.String(), rapid.StringMatching(`["'{}\[\]:,#&*!|>%@\\ \n\ta-c-]{0,12}`)).
			Filter(func(s string) bool { return !strings.Contains(s, "${env:") }).Draw(t, "value")
		form := rapid.SampledFrom([]string{"%s", `"%s"`, `'%s'`}).Draw(t, "form")
		text := fmt.Sprintf("gateway:\n  name: "+form+" # end\nroutes:\n  - {path: /a, methods: [GET]}\n", "x${env:V}")
		resolved, err := gateway.ResolveEnv([]byte(text), environment("V", value))
		if err != nil {
			t.Fatal(err)
		}
		d, err := gateway.ParseDocument(resolved)
		if bad := gateway.CheckName("x" + value); bad != nil {
			// An invalid value of the variable is an error of the name only.
			var rejected *fault.Error
			if !errors.As(err, &rejected) || rejected.Field != "gateway.name" {
				t.Fatalf("got %v, want %v of gateway.name for\n%s", err, bad, resolved)
			}
			return
		}
		if err != nil {
			t.Fatalf("got %v, want no error for\n%s", err, resolved)
		}
		if d.Gateway.Name.Value != "x"+value || len(d.Routes) != 1 {
			t.Fatalf("got name %q and %d routes, want %q and 1, of\n%s", d.Gateway.Name.Value, len(d.Routes), "x"+value, resolved)
		}
	})
}
