package validate

import (
	"strings"
	"testing"
)

// Guarantee: a pattern means what ECMA-262 says with the flag u, or is not supported (edge.md, section 6).
func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, match, noMatch string // separated by |; "" for none
	}{
		{`^a.c$`, "abc|a\u00e4c|a😀c", "a\nc|a\rc|a\u2028c|abcd"},
		{`^\s+$`, " \t\v\f\r\n\u00a0\ufeff\u2003", "a|\u200b"},
		{`^\S$`, "a|\u200b", " |\u00a0"},
		{`^[\s,]+$`, " ,\u00a0", "a"},
		{`^[\s\S]+$`, "a\n", ""},
		{`^[^]$`, "\n", ""},
		{`^[]$`, "", "a|"},
		{`^\d\w$`, "1a|1_", "\u0661a|1\u00e4"},
		{`^[[:alpha:]]$`, "[]|a]", "b"},
		{`^[\[\]]$`, "[|]", "a"},
		{`^\u0041\x42\u{43}\cJ$`, "ABC\n", "ABC"},
		{`^[\u{1F600}-\u{1F64F}]$`, "😀", "a"},
		{`^\ud83d\ude00$`, "😀", ""},
		{`^\p{L}\p{Lu}\P{L}$`, "aA1|äÄ-", "aa1"},
		{`^\p{Script=Greek}$`, "α", "a"},
		{`^(?<year>\d{4})-(?:a|b)$`, "2026-a", "26-a"},
		{`^a{2,3}?$`, "aa|aaa", "a|aaaa"},
		{`a|b$`, "xax|xb", "bx"},
		{`^[\b]$`, "\b", "b"},
		{`^\/\-\.\$\0$`, "/-.$\x00", ""},
		{`a$`, "ba", "a\n"},
		{`^\é$`, "é", ""},
	} {
		p, err := compilePattern(c.pattern)
		if err != nil {
			t.Errorf("%s: got %v, want a pattern", c.pattern, err)
			continue
		}
		for texts, want := range map[string]bool{c.match: true, c.noMatch: false} {
			if texts == "" {
				continue
			}
			for text := range strings.SplitSeq(texts, "|") {
				if got := p.MatchString(text); got != want {
					t.Errorf("%s: %q: got %t, want %t", c.pattern, text, got, want)
				}
			}
		}
	}
	for pattern, want := range map[string]string{
		`a(?=b)`: "lookahead", `a(?!b)`: "lookahead", `(?<=a)b`: "lookbehind", `(?<!a)b`: "lookbehind",
		`(a)\1`: "backreference", `(?<a>a)\k<a>`: "backreference", `(?i)a`: "modifiers", `(?i:a)`: "modifiers",
		`\A`: `escape \A`, `\z`: `escape \z`, `\Qa\E`: `escape \Q`, `[\S]`: `escape \S`, `\pL`: "without a property",
		`(`: "not a regular expression", `a**`: "not a regular expression", `\ud83d`: "does not exist", `\u{110000}`: "does not exist", `\u12`: "without four digits",
		`\u{1`: "without a }", `a\`: "ends with a backslash", `\p{None}`: "not a regular expression", `(a{900}){900}`: "not a regular expression",
		strings.Repeat("a{999}", 50): "too large", strings.Repeat("a", 2001): "2000 bytes",
	} {
		if _, err := compilePattern(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: got %v, want %q", pattern, err, want)
		}
	}
}

// FuzzPattern looks for a pattern that makes the translation panic, or that package regexp does not take after all.
func FuzzPattern(f *testing.F) {
	for _, seed := range []string{`^[\s\S]\u{1F600}(?<a>\p{L})\cJ$`, `[^]a]`, `\`, `\u`, `\x1`, `\p{`, `(?`, `[\`, `[[:x:]]`} {
		f.Add(seed, "a")
	}
	f.Fuzz(func(t *testing.T, text, subject string) {
		if p, err := compilePattern(text); err == nil {
			p.MatchString(subject)
		}
	})
}
