package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// Guarantee: nothing that others choose is a link, a mention, HTML or another cell of a table in a
// comment, and a comment is short enough for GitHub whatever changes.
func TestMarkdownOfHostileTexts(t *testing.T) {
	t.Parallel()
	const hostile = "/a|b`c``d <img src=x onerror=alert(1)> @everyone [x](javascript:1)\n# head"
	route := client.RouteChange{Path: hostile, Methods: []string{"GET"}}
	p := &client.Push{
		Added: []client.RouteChange{route}, Warnings: []string{hostile},
		Effect: &client.Effect{Requests: 3, Keys: 1, Refused: 3, AtMost: true, Routes: []client.RouteEffect{{Path: hostile, Methods: []string{"GET"}, Requests: 3, Keys: 1, Refused: 3, AtMost: true}}},
	}
	var b strings.Builder
	if err := writeMarkdown(&b, "Changes", []comparison{{title: terminal.Code(hostile), settings: []client.SettingChange{{Field: "name", Before: hostile, After: hostile}}, push: p}}); err != nil {
		t.Fatal(err)
	}
	const as = "``` "
	for line := range strings.SplitSeq(b.String(), "\n") {
		if strings.Contains(line, "# head") && !strings.Contains(line, as) || strings.HasPrefix(line, "# head") {
			t.Errorf("a text is more than one line: %q", line)
		}
		outside := ""
		for i, part := range strings.Split(line, "```") {
			if i%2 == 0 {
				outside += part
			}
		}
		if strings.ContainsAny(outside, "<@[") {
			t.Errorf("%q has a text that is not code", line)
		}
		if n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"); strings.HasPrefix(line, "| +") && n != 4 {
			t.Errorf("%q has %d separators of cells, want 4", line, n)
		}
	}
	if !strings.Contains(b.String(), "| at most 3 | 0 |") || !strings.Contains(b.String(), "**3 requests with 1 key in the last 24 hours used routes that this affects. At most 3 would be refused.**") {
		t.Errorf("the effect is missing:\n%s", &b)
	}
	for range 5000 {
		p.Added = append(p.Added, route)
	}
	for _, all := range [][]comparison{{{push: p}}, make([]comparison, 5000)} {
		for i := range all {
			all[i].title = terminal.Code(hostile)
		}
		b.Reset()
		if err := writeMarkdown(&b, "Changes", all); err != nil || utf8.RuneCountInString(b.String()) > 65_536 {
			t.Errorf("got a comment of %d characters, %v", utf8.RuneCountInString(b.String()), err)
		}
		if !strings.Contains(b.String(), "left out") && !strings.Contains(b.String(), "too many to list") {
			t.Error("the comment does not say that something is left out")
		}
	}
}
