package terminal

import (
	"cmp"
	"fmt"
	"strings"
)

// OpenRows is how many rows a table has that is not folded.
const OpenRows = 20

// MarkdownTable writes a table of at most most rows, folded if it is long.
func MarkdownTable(b *strings.Builder, head []string, rows [][]string, most int) {
	if len(rows) == 0 {
		return
	}
	shown := rows[:min(len(rows), most)]
	folded := len(rows) > OpenRows
	if folded {
		fmt.Fprintf(b, "<details><summary>%d lines</summary>\n\n", len(rows))
	}
	if len(shown) > 0 {
		fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	}
	for _, r := range shown {
		fmt.Fprintf(b, "| %s |\n", strings.Join(r, " | "))
	}
	if left := len(rows) - len(shown); left > 0 {
		fmt.Fprintf(b, "\n%d more lines are left out: keygate config diff shows them all.\n", left)
	}
	b.WriteByte('\n')
	if folded {
		b.WriteString("</details>\n\n")
	}
}

// Code returns a text as code in a cell of a table: as it is, on one line.
func Code(text string) string {
	text = strings.ReplaceAll(Clean(text), "|", `\|`)
	text = cmp.Or(text, " ")
	longest, run := 0, 0
	for _, r := range text {
		if r != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	if longest > 0 {
		return fence + " " + text + " " + fence
	}
	return fence + text + fence
}
