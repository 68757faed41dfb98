package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// defaultWidth is the width of a terminal that does not report one.
const defaultWidth = 80

// style is an ANSI code (SGR) for text on a terminal.
type style string

const (
	bold   style = "1"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

// paint returns text in a style, or as it is if colours are off.
func (s style) paint(on bool, text string) string {
	if !on || s == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// styleOfState returns the style of a word that is a state or an outcome.
func styleOfState(word string) style {
	switch word {
	case "active", "delivered", "success", "valid":
		return green
	case "expired", "disabled", "suspended", "pending", "retry_scheduled":
		return yellow
	case "revoked", "failed", "key_invalid", "key_expired", "scope_insufficient":
		return red
	default:
		return ""
	}
}

// isTerminal reports whether stream is a terminal, and returns its descriptor.
func isTerminal(stream any) (int, bool) {
	f, ok := stream.(*os.File)
	if !ok {
		return 0, false
	}
	fd := int(f.Fd())
	return fd, term.IsTerminal(fd)
}

// width returns the number of columns of the terminal that stream is; 0 if it is not a
// terminal. COLUMNS takes precedence over what the terminal reports.
func (s *System) width(stream io.Writer) int {
	fd, ok := isTerminal(stream)
	if !ok {
		return 0
	}
	given, _ := s.Env("COLUMNS")
	if n, err := strconv.Atoi(given); err == nil && n > 0 {
		return n
	}
	if n, _, err := term.GetSize(fd); err == nil && n > 0 {
		return n
	}
	return defaultWidth
}

// say writes a message to standard error, folded to the width of the terminal.
func (s *System) say(format string, args ...any) {
	// A failed write to standard error cannot be reported.
	_, _ = io.WriteString(s.Err, fold(fmt.Sprintf(format, args...), s.width(s.Err), 0)+"\n")
}

// fold breaks the lines of text that are longer than width between words, and indents what
// follows. A width of 0 or less is unlimited.
func fold(text string, width, indent int) string {
	if width <= 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		var b strings.Builder
		for textWidth(line) > width {
			at := lastSpace(line, indent, width, " ")
			if at < 0 {
				break
			}
			b.WriteString(line[:at] + "\n")
			line = strings.Repeat(" ", indent) + strings.TrimLeft(line[at:], " ")
		}
		lines[i] = b.String() + line
	}
	return strings.Join(lines, "\n")
}

// The values of --color.
const (
	colourAuto   = "auto"
	colourAlways = "always"
	colourNever  = "never"
)

// colours reports whether output to stream is coloured. With auto, that is so on terminals
// that can show colours, unless NO_COLOR is set (https://no-color.org).
func (s *System) colours(stream io.Writer, mode string) bool {
	switch mode {
	case colourAlways:
		return true
	case colourNever:
		return false
	}
	fd, ok := isTerminal(stream)
	if !ok {
		return false
	}
	if v, _ := s.Env("NO_COLOR"); v != "" {
		return false
	}
	if v, _ := s.Env("TERM"); v == "dumb" {
		return false
	}
	return enableColours(fd)
}
