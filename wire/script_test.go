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

// script is a case, a sequence of steps:
//
//	=== the guarantee
//	# the reason, where it is not obvious
//	setup: timeout=1s base=/v2
//	modes: plain bytes
//	--- client sends
//	GET / HTTP/1.1
//	…
//
// The line "setup:" configures the gateway, "modes:" limits the modes in which the case
// runs: plain, tls, and bytes, in which the client's bytes are sent one by one.
//
// A line of text ends with CRLF unless its last character is a backslash. \r, \n, \t, \0,
// \xHH and \\ denote bytes; {64*a} is 64 times "a"; {key} is the key, {host} the gateway's
// hostname and {upstream} the upstream's address. In bytes to receive, {own} stands for the
// fields that every forwarded request gets, {id} for a request identifier, {date} for a
// date, {limits} for the rate limit fields, {any} for the rest of a line, and {chunks text}
// for text in chunks of any size.
//
// The steps "client sends" and "upstream sends" send their text; "upstream receives" and
// "client receives" check that exactly their text comes next. "refused" receives an error
// response of the gateway, given by its status, its error code, and "closed" if the
// connection must end. "2 s pass" advances the gateway's clock. The other steps are listed
// in caseRun.step.
type script struct {
	name     string
	position string // file:line
	setup    []string
	modes    []string
	steps    []step
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
			out = append(out, script{name: text[4:], position: fmt.Sprintf("%s:%d", filepath.Base(path), i+1)})
		case s == nil:
			if text != "" && text[0] != '#' {
				t.Fatalf("%s:%d: text before the first case", path, i+1)
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
			t.Fatalf("%s:%d: %q is not part of a case", path, i+1, text)
		}
	}
	for i := range out[:max(0, len(out)-1)] {
		trimLast(&out[i])
	}
	return out
}

// trimLast removes the empty line between a case and the next.
func trimLast(s *script) {
	if len(s.steps) == 0 {
		return
	}
	last := &s.steps[len(s.steps)-1]
	last.text = strings.TrimSuffix(last.text, `\r\n`)
}

// setupOf parses the line "setup:".
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
			t.Fatalf("%s: unknown setup %q", s.position, word)
		}
	}
	return out
}

func (s *script) runsIn(mode string) bool {
	return len(s.modes) == 0 || slices.Contains(s.modes, mode)
}
