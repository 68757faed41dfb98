package terminal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/itchyny/gojq"
)

// CompileFilter compiles a jq expression. The error shows where it is wrong.
func CompileFilter(expr string) (*gojq.Code, error) {
	if strings.TrimSpace(expr) == "" {
		return nil, fmt.Errorf("--jq is empty: give it an expression, such as .[].name")
	}
	query, err := gojq.Parse(expr)
	var wrong *gojq.ParseError
	if errors.As(err, &wrong) {
		return nil, filterError(expr, min(len(expr), max(0, wrong.Offset-len(wrong.Token))), err)
	}
	if err != nil {
		return nil, filterError(expr, -1, err)
	}
	code, err := gojq.Compile(query)
	if err != nil {
		// The error names what is not defined, as in: function not defined: f/1.
		_, name, _ := strings.Cut(err.Error(), ": ")
		name, _, _ = strings.Cut(name, "/")
		at := -1
		if name != "" {
			at = strings.Index(expr, name)
		}
		return nil, filterError(expr, at, err)
	}
	return code, nil
}

// filterError returns an error that points at the byte at of an expression; -1 means that the
// position is unknown.
func filterError(expr string, at int, err error) error {
	if at < 0 {
		return fmt.Errorf("--jq: %w in %s", err, Clean(expr))
	}
	start := strings.LastIndexByte(expr[:at], '\n') + 1
	line, _, _ := strings.Cut(expr[start:], "\n")
	column := TextWidth(Clean(expr[start:at]))
	if start == at {
		column = 0 // Clean shows nothing as a dash
	}
	return fmt.Errorf("--jq: %w at line %d, column %d:\n  %s\n  %s^",
		err, strings.Count(expr[:at], "\n")+1, column+1, Clean(line), strings.Repeat(" ", column))
}

// printFiltered writes the results of --jq for data: strings as they are, everything else as
// JSON. It writes them as they come, so their number is not bounded.
func (c *Console) printFiltered(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber() // keep large numbers exact
	var input any
	if err := dec.Decode(&input); err != nil {
		return fmt.Errorf("--jq: %w", err)
	}
	w := bufio.NewWriter(c.Out)
	for results := c.Filter.RunWithContext(c.Context, input); ; {
		v, more := results.Next()
		if !more {
			return w.Flush()
		}
		if err, failed := v.(error); failed {
			var halt *gojq.HaltError
			if errors.As(err, &halt) && halt.Value() == nil {
				err = nil // the function halt
			} else {
				err = fmt.Errorf("--jq: %w", err)
			}
			return errors.Join(w.Flush(), err)
		}
		if err := c.printResult(w, v); err != nil {
			return err
		}
	}
}

// printResult writes one result of --jq.
func (c *Console) printResult(w io.Writer, v any) error {
	if text, ok := v.(string); ok {
		if c.Width(c.Out) > 0 {
			text = cleanLines(text)
		}
		_, err := io.WriteString(w, text+"\n")
		return err
	}
	out, err := gojq.Marshal(v)
	if err != nil {
		return fmt.Errorf("--jq: %w", err)
	}
	if c.Width(c.Out) > 0 {
		var b bytes.Buffer
		if err := json.Indent(&b, out, "", "  "); err != nil {
			return fmt.Errorf("--jq: %w", err)
		}
		out = escapeControls(b.Bytes())
	}
	_, err = w.Write(append(out, '\n'))
	return err
}

// cleanLines is clean for a text whose line ends and tabs are meant.
func cleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		parts := strings.Split(line, "\t")
		for j, p := range parts {
			if p != "" {
				parts[j] = Clean(p)
			}
		}
		lines[i] = strings.Join(parts, "\t")
	}
	return strings.Join(lines, "\n")
}
