package terminal

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// DefaultWidth is the width of a terminal that does not report one.
const DefaultWidth = 80

// Style is an ANSI code (SGR) for text on a terminal.
type Style string

// The styles.
const (
	Bold   Style = "1"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
)

// Paint returns text in a style, or as it is if colours are off.
func (s Style) Paint(on bool, text string) string {
	if !on || s == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// styleOfState returns the style of a word that is a state or an outcome.
func styleOfState(word string) Style {
	switch word {
	case "active", "delivered", "success", "valid":
		return Green
	case "expired", "disabled", "suspended", "pending", "retry_scheduled":
		return Yellow
	case "revoked", "failed", "key_invalid", "key_expired", "scope_insufficient":
		return Red
	default:
		return ""
	}
}

// IsTerminal reports whether stream is a terminal, and returns its descriptor.
func IsTerminal(stream any) (int, bool) {
	f, ok := stream.(*os.File)
	if !ok {
		return 0, false
	}
	fd := int(f.Fd())
	return fd, term.IsTerminal(fd)
}

// Width returns the number of columns of the terminal that stream is; 0 if it is not a
// terminal. COLUMNS takes precedence over what the terminal reports.
func (c *Console) Width(stream io.Writer) int {
	fd, ok := IsTerminal(stream)
	if !ok {
		return 0
	}
	given, _ := c.Env("COLUMNS")
	if n, err := strconv.Atoi(given); err == nil && n > 0 {
		return n
	}
	if n, _, err := term.GetSize(fd); err == nil && n > 0 {
		return n
	}
	return DefaultWidth
}

// Say writes a message to standard error, folded to the width of the terminal.
func (c *Console) Say(format string, args ...any) {
	// A failed write to standard error cannot be reported.
	_, _ = io.WriteString(c.Err, Fold(fmt.Sprintf(format, args...), c.Width(c.Err), 0)+"\n")
}

// Fold breaks the lines of text that are longer than width between words, and indents what
// follows. A width of 0 or less is unlimited.
func Fold(text string, width, indent int) string {
	if width <= 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		var b strings.Builder
		for TextWidth(line) > width {
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
	ColourAuto   = "auto"
	ColourAlways = "always"
	ColourNever  = "never"
)

// Colours reports whether output to stream is coloured. With auto, it is coloured on terminals that
// can show colours, unless NO_COLOR is set (https://no-color.org).
func (c *Console) Colours(stream io.Writer) bool {
	switch c.Colour {
	case ColourAlways:
		return true
	case ColourNever:
		return false
	}
	fd, ok := IsTerminal(stream)
	if !ok {
		return false
	}
	if v, _ := c.Env("NO_COLOR"); v != "" {
		return false
	}
	if v, _ := c.Env("TERM"); v == "dumb" {
		return false
	}
	return enableColours(fd)
}
