package cli_test

import (
	"regexp"
	"strings"
	"testing"
)

const (
	firstSpec  = "openapi: 3.1.0\ninfo: {title: t, version: '1'}\npaths: {/a: {get: {}}}\n"
	secondSpec = "openapi: 3.1.0\ninfo: {title: t, version: '1'}\npaths: {/b: {get: {}}}\n"
)

// plain returns what a terminal shows on one line, without colours.
func plain(screen string) string {
	return strings.Join(strings.Fields(regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(screen, "")), " ")
}

// Guarantee: on a terminal, a rollback says from which revision it goes to which revision and what
// changes, and asks. Any answer but y cancels with exit status 1 and rolls nothing back; --yes does not
// ask.
func TestRollbackAsksOnATerminal(t *testing.T) {
	s, g := busyServer(t)
	for _, doc := range []string{firstSpec, secondSpec} {
		if _, err := s.Admin.PushSpec(t.Context(), g, []byte(doc), false); err != nil {
			t.Fatal(err)
		}
	}
	last := func() int64 {
		record, err := s.Admin.Gateway(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		return *record.Revision
	}
	from := last()
	rollback := []string{"spec", "rollback", "--gateway", g, "--previous"}
	for _, answer := range []string{"\n", "n\n", "nonsense\n", "\x04"} {
		status, screen := answerTo(t, s, answer, rollback...)
		if status != 1 || !strings.HasSuffix(screen, "Cancelled.\n") || last() != from {
			t.Errorf("answer %q: exit status %d, revision %d\n%s", answer, status, last(), screen)
		}
		for _, want := range []string{"This rolls back gateway orders-and-customers (" + g + ") from revision ", " to revision ", " by admin:", " + GET /a - GET /b Roll back? [y/N] "} {
			if !strings.Contains(plain(screen), want) {
				t.Errorf("answer %q: the question lacks %q:\n%s", answer, want, screen)
			}
		}
	}
	status, screen := answerTo(t, s, "y\n", rollback...)
	if status != 0 || !strings.Contains(screen, "Rolled back to revision ") || strings.Count(screen, "GET /a") != 1 || last() != from+1 {
		t.Errorf("exit status %d, revision %d\n%s", status, last(), screen)
	}
	if screen := show(t, s, nil, append(rollback, "--yes")...); strings.Contains(screen, "Roll back?") || last() != from+2 {
		t.Errorf("revision %d\n%s", last(), screen)
	}
}
