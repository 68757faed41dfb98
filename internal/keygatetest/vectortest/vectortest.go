// Package vectortest loads public HTTP/1.1 test vectors, which are kept in a directory beside the
// repository: the vectors of Node's parser (llhttp) and of http-desync-guardian. It also lists the
// vectors on which this project differs from them, and why.
package vectortest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/keygate/keygate/internal/keygatetest/needtest"
)

// Test is the part of testing.TB that this package needs.
type Test interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// dir returns the directory of a collection. It skips the test if there is none.
func dir(t Test, name string) string {
	t.Helper()
	root, err := os.Getwd() // the directory of the package under test
	for err == nil {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(root)
		if parent == root {
			t.Fatal("no directory above the working directory has a go.mod")
		}
		root = parent
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "..", "shared", "data", "http", name)
	if _, err := os.Stat(path); err != nil {
		needtest.Missing(t, "needs the public vectors of %s, which are kept beside the repository: %v", name, err)
	}
	return path
}

// files returns the files of a collection that match pattern.
func files(t Test, name, pattern string) (out []file) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir(t, name), pattern))
	if err != nil || len(paths) == 0 {
		t.Fatal("no vectors found:", pattern, err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, file{filepath.Base(path), data})
	}
	return out
}

type file struct {
	name string
	data []byte
}

// Desync is a request of http-desync-guardian.
type Desync struct {
	Name   string // file/name
	Input  string
	Tier   string // Compliant, Acceptable, Ambiguous or Severe
	Reason string
}

// DesyncRequests returns all requests of http-desync-guardian. To requests without a Host it adds
// one, which RFC 9112, 3.2 requires.
func DesyncRequests(t Test) (out []Desync) {
	t.Helper()
	for _, f := range files(t, "desync", "*.yaml") {
		var vectors []struct {
			Name, URI, Method, Version string
			Headers                    []struct{ Name, Value string }
			Expected                   struct{ Tier, Reason string }
		}
		if err := yaml.Unmarshal(f.data, &vectors); err != nil {
			t.Fatal(f.name, err)
		}
		for _, v := range vectors {
			var b strings.Builder
			b.WriteString(v.Method + " " + v.URI + " " + v.Version + "\r\n")
			hosts := 0
			for _, h := range v.Headers {
				b.WriteString(h.Name + ":" + h.Value + "\r\n")
				if strings.EqualFold(strings.TrimSpace(h.Name), "host") {
					hosts++
				}
			}
			if hosts == 0 {
				b.WriteString("Host: example.com\r\n")
			}
			b.WriteString("\r\n")
			out = append(out, Desync{f.name + "/" + v.Name, b.String(), v.Expected.Tier, v.Expected.Reason})
		}
	}
	return out
}

// Node is a vector of Node's parser.
type Node struct {
	Name  string // file/title
	Meta  string
	Input string
	Log   string // the events and errors that Node's parser reports
}

// NodeVectors returns the vectors in the files that match pattern. To requests without a
// Host it adds one; otherwise they would all be rejected for that reason alone.
func NodeVectors(t Test, pattern string) (out []Node) {
	t.Helper()
	title := regexp.MustCompile(`(?m)^#+ (.*)$`)
	meta := regexp.MustCompile(`<!-- meta=(.*?) -->`)
	block := regexp.MustCompile("(?s)```(http|log)\n(.*?)\n?```")
	for _, f := range files(t, "llhttp", pattern) {
		text := string(f.data)
		metas := meta.FindAllStringSubmatchIndex(text, -1)
		for i, m := range metas {
			end := len(text)
			if i+1 < len(metas) {
				end = metas[i+1][0]
			}
			titles := title.FindAllStringSubmatch(text[:m[0]], -1)
			v := Node{Name: f.name + "/" + titles[len(titles)-1][1], Meta: text[m[2]:m[3]]}
			for _, found := range block.FindAllStringSubmatch(text[m[1]:end], -1) {
				if found[1] == "http" {
					v.Input = addHost(unescape(found[2]))
				} else {
					v.Log = found[2]
				}
			}
			out = append(out, v)
		}
	}
	return out
}

// Refused reports whether Node's parser rejects the vector.
func (v Node) Refused() bool {
	return strings.Contains(v.Log, "error code") && !strings.Contains(v.Log, "pause") &&
		!strings.Contains(v.Log, "code=21") && !strings.Contains(v.Log, "code=22")
}

// Lenient reports whether Node's parser accepts the vector only in a lenient mode.
func (v Node) Lenient() bool { return strings.Contains(v.Meta, "lenient") && !v.Refused() }

// unescape returns the bytes that a vector denotes: line ends are CRLF, and escape
// sequences are resolved.
func unescape(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = strings.ReplaceAll(s, "\\\n", "") // a line continuation
	s = strings.ReplaceAll(s, "\n", "\r\n")
	return strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\t`, "\t", `\f`, "\f", `\x00`, "\x00").Replace(s)
}

// addHost adds a Host field to each request without one.
func addHost(s string) string {
	requestLine := regexp.MustCompile(`(?m)^([A-Z-]+ [^\r\n]+ HTTP/1\.[01]\r\n)`)
	return requestLine.ReplaceAllStringFunc(s, func(line string) string {
		at := strings.Index(s, line)
		head, _, _ := strings.Cut(s[at:], "\r\n\r\n")
		if strings.Contains(strings.ToLower(head), "\nhost") {
			return line
		}
		return line + "Host: h\r\n"
	})
}
