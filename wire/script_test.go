package wire

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// script is a case: what happens, in turn.
//
//	=== what is shown
//	# why, if it is not plain
//	setup: timeout=1s base=/v2
//	--- client
//	GET / HTTP/1.1
//	…
//
// A line ends with CRLF unless its last character is a backslash. \r, \n, \t, \0,
// \xHH and \\ are bytes; {64*a} is 64 times "a"; {key} and {upstream} are the
// key and the upstream's address. Where something is received, {own} are the
// fields that every forwarded request gets, {id} a request's identifier, {date} a
// time, {limits} the fields of rate limits, {any} the rest of a line, and
// {chunks text} text in chunks of any size.
//
// The steps: "client" and "answer" send for the client and the upstream;
// "upstream" and "result" tell what exactly these receive next. "refused" reads
// an error of the gateway's: its status, its word, and "closed" if the
// connection must end. The others are in steps below.
type script struct {
	name  string
	place string
	setup []string
	modes []string
	steps []step
}

type step struct {
	what string
	text string
	line int
}

// readScripts reads the cases of a file.
func readScripts(t testing.TB, path string) []script {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []script
	for i, text := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		var s *script
		if len(out) > 0 {
			s = &out[len(out)-1]
		}
		switch {
		case strings.HasPrefix(text, "=== "):
			out = append(out, script{name: text[4:], place: fmt.Sprintf("%s:%d", filepath.Base(path), i+1)})
		case s == nil:
			if text != "" && text[0] != '#' {
				t.Fatalf("%s:%d is before the first case", path, i+1)
			}
		case strings.HasPrefix(text, "--- "):
			s.steps = append(s.steps, step{what: text[4:], line: i + 1})
		case len(s.steps) > 0:
			last := &s.steps[len(s.steps)-1]
			if before, joined := strings.CutSuffix(text, `\`); joined && !strings.HasSuffix(before, `\`) {
				last.text += before
			} else {
				last.text += text + `\r\n`
			}
		case strings.HasPrefix(text, "setup: "):
			s.setup = strings.Fields(text[len("setup: "):])
		case strings.HasPrefix(text, "modes: "):
			s.modes = strings.Fields(text[len("modes: "):])
		case text != "" && text[0] != '#':
			t.Fatalf("%s:%d: %q is no part of a case", path, i+1, text)
		}
	}
	for i := range out[:max(0, len(out)-1)] {
		trimLast(&out[i])
	}
	return out
}

// trimLast removes the empty line that parts a case from the next.
func trimLast(s *script) {
	if len(s.steps) == 0 {
		return
	}
	last := &s.steps[len(s.steps)-1]
	last.text = strings.TrimSuffix(last.text, `\r\n`)
}

// setupOf reads the line "setup:".
func (s *script) setupOf(t testing.TB) (out setup) {
	t.Helper()
	for _, word := range s.setup {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "base":
			out.base = value
		case "timeout":
			out.timeout = value
		case "limit":
			out.limit = value
		case "trusted":
			out.trusted = true
		case "max_body":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			out.maxBody = n
		case "header":
			field, content, _ := strings.Cut(value, ":")
			if out.headers == nil {
				out.headers = map[string]string{}
			}
			out.headers[field] = content
		default:
			t.Fatalf("%s: setup %q means nothing", s.place, word)
		}
	}
	return out
}

func (s *script) runsIn(mode string) bool {
	return len(s.modes) == 0 || slices.Contains(s.modes, mode)
}
