package terminal

import (
	"regexp"
	"strings"
)

// Reflow joins the lines of each paragraph that is not indented.
func Reflow(text string) string {
	var b strings.Builder
	prose := false // the line before is part of a paragraph
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		next := line != "" && !strings.HasPrefix(line, " ")
		switch {
		case b.Len() == 0:
		case prose && next:
			b.WriteByte(' ')
		default:
			b.WriteByte('\n')
		}
		b.WriteString(line)
		prose = next
	}
	return b.String()
}

// Wrap breaks lines that are longer than 80 columns. It breaks an example so that a shell joins its lines again. Any
// other line continues below the text that it explains.
func Wrap(text string) string {
	item := regexp.MustCompile(`^ +([0-9]+\. |[a-z-]+ +)?`)
	var b strings.Builder
	examples := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "Examples:"):
			examples = true
		case line == "":
			examples = false
		}
		indent, end := len(item.FindString(line)), ""
		if examples {
			indent, end = 6, ` \`
		}
		for TextWidth(line) > DefaultWidth {
			at := -1
			if examples { // keep a flag and its value together
				at = lastSpace(line, indent, DefaultWidth-len(end), " -")
			}
			if at < 0 {
				at = lastSpace(line, indent, DefaultWidth-len(end), " ")
			}
			if at < 0 {
				break
			}
			b.WriteString(line[:at] + end + "\n")
			line = strings.Repeat(" ", indent) + strings.TrimLeft(line[at:], " ")
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// lastSpace returns the index of the last space behind the indent that is followed by the rest of
// mark and has at most width columns before it; -1 if there is none.
func lastSpace(line string, indent, width int, mark string) int {
	last := -1
	for i := range line {
		if TextWidth(line[:i]) > width {
			break
		}
		if i > indent && strings.HasPrefix(line[i:], mark) {
			last = i
		}
	}
	return last
}
