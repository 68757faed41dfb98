package http1

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// vectorDir is where the public test vectors are kept beside the project.
func vectorDir(t *testing.T, name string) string {
	dir := filepath.Join("..", "..", "..", "shared", "data", "http", name)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("needs the public vectors of %s, which are kept beside the project: %v", name, err)
	}
	return dir
}

// verdict reads input in all its splits and fails the test if they differ.
func verdict(t *testing.T, r *rand.Rand, input []byte) reading {
	t.Helper()
	var first reading
	for i, pieces := range splits(r, input, 20) {
		got := readAll(pieces)
		if i == 0 {
			first = got
		} else if !sameReading(first, got) {
			t.Fatalf("%q\nread whole: %v\nsplit as %q: %v", input, first, pieces, got)
		}
	}
	return first
}

type desyncVector struct {
	Name, URI, Method, Version string
	Headers                    []struct{ Name, Value string }
	Expected                   struct{ Tier, Reason string }
}

// Guarantee: of the vectors of http-desync-guardian, all that is Severe is
// refused, all that is Compliant passes, and what passes of the tiers between
// is unambiguous: one framing, no bad token, no white space that another
// parser could read differently.
func TestDesyncVectors(t *testing.T) {
	dir := vectorDir(t, "desync")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no vectors", err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	seen := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var vectors []desyncVector
		if err := yaml.Unmarshal(data, &vectors); err != nil {
			t.Fatal(file, err)
		}
		for _, v := range vectors {
			seen++
			var b strings.Builder
			b.WriteString(v.Method + " " + v.URI + " " + v.Version + "\r\n")
			hosts := 0
			for _, h := range v.Headers {
				b.WriteString(h.Name + ":" + h.Value + "\r\n")
				if strings.EqualFold(strings.TrimSpace(h.Name), "host") {
					hosts++
				}
			}
			if hosts == 0 { // the vectors leave it out; RFC 9112, 3.2 demands it
				b.WriteString("Host: example.com\r\n")
			}
			b.WriteString("\r\n")
			got := verdict(t, r, []byte(b.String()))
			name := filepath.Base(file) + "/" + v.Name
			refused := got.err != nil
			switch v.Expected.Tier {
			case "Severe":
				if !refused {
					t.Errorf("%s (%s): passed\n%q", name, v.Expected.Reason, b.String())
				}
			case "Compliant":
				if _, listed := codings[name]; refused != listed {
					t.Errorf("%s: refused: %v\n%q", name, got.err, b.String())
				}
			case "Acceptable", "Ambiguous":
				for _, m := range got.messages {
					framings := 0
					for _, f := range m.fields {
						lower := strings.ToLower(f)
						if strings.HasPrefix(lower, "content-length:") || strings.HasPrefix(lower, "transfer-encoding:") {
							framings++
						}
					}
					if framings > 1 || strings.ContainsAny(m.target, " \t") {
						t.Errorf("%s: passed ambiguously: %+v", name, m)
					}
				}
			default:
				t.Errorf("%s: unknown tier %q", name, v.Expected.Tier)
			}
		}
	}
	if seen < 150 {
		t.Errorf("only %d vectors were found", seen)
	}
}

// stricter lists the vectors that Node's parser accepts and this one refuses,
// with the rule that decides it (contract, 4.5 or RFC 9112).
var stricter = map[string]string{
	"request-method.md/SOURCE request with ICE":                                                     "only HTTP is spoken here",
	"request-method.md/OPTIONS request with RTSP":                                                   "only HTTP is spoken here",
	"request-method.md/ANNOUNCE request with RTSP":                                                  "only HTTP is spoken here",
	"request-sample.md/No HTTP version":                                                             "HTTP/0.9 is not spoken (contract, 4.5: HTTP/1.x)",
	"request-transfer-encoding.md/POST with `chunked` as last transfer-encoding":                    "any coding but a final chunked (contract, 4.5)",
	"request-transfer-encoding.md/POST with `chunked` as last transfer-encoding (multiple headers)": "any coding but a final chunked (contract, 4.5)",
}

// laxer lists the vectors that Node's parser refuses and this one reads, with
// the rule that decides it.
var laxer = map[string]string{
	"request-uri.md/Disallow UTF-8 in URI path in strict mode": "http-desync-guardian calls letters beyond ASCII compliant, and 4.5 does not refuse them",
	"request-invalid.md/HTTP protocol and ANNOUNCE method":     "a method is any token (RFC 9110, 9.1); routes say which are served",
	"request-invalid.md/Invalid method":                        "a method is any token (RFC 9110, 9.1); routes say which are served",
}

// codings lists the vectors of http-desync-guardian that are Compliant and
// refused here, with the rule that decides it.
var codings = map[string]string{
	"more-compliant-tests.yaml/Correct TE OK":                                             "any coding but a final chunked (contract, 4.5)",
	"more-compliant-tests.yaml/Transfer-Encoding: identity and chunked OK":                "any coding but a final chunked (contract, 4.5)",
	"more-compliant-tests.yaml/Multiple transfer encoding headers in a single request OK": "any coding but a final chunked (contract, 4.5)",
	"more-compliant-tests.yaml/TE with custom parameters OK":                              "chunked takes no parameters (RFC 9112, 7.1)",
	"rfc-compliant.yaml/Different Transfer-Encoding headers":                              "any coding but a final chunked (contract, 4.5)",
	"rfc-compliant.yaml/Different Transfer-Encoding headers combined":                     "any coding but a final chunked (contract, 4.5)",
	"rfc-compliant.yaml/Transfer-Encoding with a param: chunked;custom_param":             "any coding but a final chunked (contract, 4.5)",
	"rfc-compliant.yaml/Empty URI":                                                        "a request line has a target (RFC 9112, 3.2)",
}

var (
	vectorTitle = regexp.MustCompile(`(?m)^#+ (.*)$`)
	vectorMeta  = regexp.MustCompile(`<!-- meta=(.*?) -->`)
	vectorBlock = regexp.MustCompile("(?s)```(http|log)\n(.*?)\n?```")
	requestLine = regexp.MustCompile(`(?m)^([A-Z-]+ [^\r\n]+ HTTP/1\.[01]\r\n)`)
)

type llhttpVector struct {
	name, meta, input, log string
}

func llhttpVectors(t *testing.T, pattern string) (out []llhttpVector) {
	files, err := filepath.Glob(filepath.Join(vectorDir(t, "llhttp"), pattern))
	if err != nil || len(files) == 0 {
		t.Fatal("no vectors", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		metas := vectorMeta.FindAllStringSubmatchIndex(text, -1)
		for i, m := range metas {
			end := len(text)
			if i+1 < len(metas) {
				end = metas[i+1][0]
			}
			titles := vectorTitle.FindAllStringSubmatch(text[:m[0]], -1)
			v := llhttpVector{name: filepath.Base(file) + "/" + titles[len(titles)-1][1], meta: text[m[2]:m[3]]}
			for _, block := range vectorBlock.FindAllStringSubmatch(text[m[1]:end], -1) {
				if block[1] == "http" {
					v.input = unescape(block[2])
				} else {
					v.log = block[2]
				}
			}
			out = append(out, v)
		}
	}
	return out
}

// unescape makes the bytes of a vector: line ends are CRLF, but those that are
// written as escapes stand for themselves.
func unescape(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = strings.ReplaceAll(s, "\\\n", "") // a line that goes on
	s = strings.ReplaceAll(s, "\n", "\r\n")
	return strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\t`, "\t", `\f`, "\f", `\x00`, "\x00").Replace(s)
}

// Guarantee: whatever Node's parser refuses is refused, and what this parser
// refuses beyond that is listed with its rule.
func TestNodeRequestVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	vectors := llhttpVectors(t, "request*.md")
	if len(vectors) < 150 {
		t.Fatalf("only %d vectors were found", len(vectors))
	}
	used := map[string]bool{}
	for _, v := range vectors {
		input := addHost(v.input)
		got := verdict(t, r, []byte(input))
		nodeRefuses := strings.Contains(v.log, "error code") && !strings.Contains(v.log, "pause") && !strings.Contains(v.log, "code=21") && !strings.Contains(v.log, "code=22")
		if strings.Contains(v.meta, "lenient") && !nodeRefuses {
			continue // Node accepts it only when told to be lenient
		}
		rule, listed := stricter[v.name]
		used[v.name] = true
		switch refused := got.err != nil; {
		case nodeRefuses && !refused && !got.rest && !got.closed && laxer[v.name] == "":
			t.Errorf("%s: Node refuses, we read %v\n%q\n%s", v.name, got, input, v.log)
		case !nodeRefuses && refused && !listed:
			t.Errorf("%s: Node reads it, we say %v\n%q", v.name, got.err, input)
		case !nodeRefuses && !refused && listed:
			t.Errorf("%s passes now; the list says %s", v.name, rule)
		}
	}
	for name := range stricter {
		if !used[name] {
			t.Errorf("%s is listed and is no vector", name)
		}
	}
}

// addHost puts a Host field into requests that have none: the vectors leave it
// out, and without it everything would be refused for that alone.
func addHost(s string) string {
	return requestLine.ReplaceAllStringFunc(s, func(line string) string {
		at := strings.Index(s, line)
		head, _, _ := strings.Cut(s[at:], "\r\n\r\n")
		if strings.Contains(strings.ToLower(head), "\nhost") {
			return line
		}
		return line + "Host: h\r\n"
	})
}
