package main

import (
	"regexp"
	"strings"
)

// commentWidth is the column after which comments are wrapped.
const commentWidth = 92

var (
	fieldComment = regexp.MustCompile(`^(\s+)// (\w+) (.+)$`)
	typeComment  = regexp.MustCompile(`^// (\w+) (.+)$`)
	modelComment = regexp.MustCompile(`^// (\w+) defines model for (\w+)\.$`)
	enumComment  = regexp.MustCompile(`^// Defines values for (\w+)\.$`)
	validComment = regexp.MustCompile(`^// Valid indicates whether the value is a known member of the (\w+) enum\.$`)
)

// rewriteComments returns the source of the generated client with comments as a
// person would write them. oapi-codegen puts the name of each field and type in front
// of its description, does not wrap lines, and adds a second package comment.
func rewriteComments(source string) string {
	lines := strings.Split(source, "\n")
	var out []string
	for i, line := range lines {
		next := ""
		if i+1 < len(lines) {
			next = lines[i+1]
		}
		switch {
		case strings.HasPrefix(line, "// Package client provides "), line == "//":
			continue
		case strings.HasPrefix(line, "// Code generated "):
			out = append(out, line, "")
			continue
		}
		if m := modelComment.FindStringSubmatch(line); m != nil {
			out = append(out, "// "+m[1]+" is the schema "+m[2]+" of the OpenAPI document.")
		} else if m := enumComment.FindStringSubmatch(line); m != nil {
			out = append(out, "// Values of "+m[1]+".")
		} else if validComment.MatchString(line) {
			out = append(out, "// Valid reports whether e is one of the constants of its type.")
		} else if m := typeComment.FindStringSubmatch(line); len(m) > 0 && strings.HasPrefix(next, "type "+m[1]+" string") {
			out = append(out, "// "+m[1]+" is an enumerated string; see its constants.")
		} else if m := fieldComment.FindStringSubmatch(line); len(m) > 0 && strings.HasPrefix(strings.TrimSpace(next), m[2]+" ") {
			out = append(out, wrapComment(m[1], m[3])...)
		} else {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// wrapComment returns text as comment lines that end before commentWidth.
func wrapComment(indent, text string) (lines []string) {
	width := commentWidth - len("// ") - 4*len(indent)
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, indent+"// "+line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, indent+"// "+line)
}
