package validate

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// tokens returns the tokens of a JSON pointer as the fragment of a URL has it, still with ~0 and ~1.
func tokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	return strings.Split(strings.TrimPrefix(pointer, "/"), "/")
}

// plain returns the name that a token stands for.
func plain(token string) string {
	if decoded, err := url.PathUnescape(token); err == nil {
		token = decoded
	}
	return document.UnescapeToken(token)
}

// encode returns a token as the fragment of a URL has it.
func encode(pointer string) string {
	parts := strings.Split(pointer, "/")
	for i := range parts {
		if decoded, err := url.PathUnescape(parts[i]); err == nil {
			parts[i] = decoded
		}
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// step returns the member or item that a token names, or nil.
func step(at any, token string) any {
	switch x := at.(type) {
	case map[string]any:
		return x[plain(token)]
	case []any:
		if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(x) {
			return x[i]
		}
	}
	return nil
}

func pointerTo(doc any, pointer string) any {
	for _, token := range tokens(pointer) {
		doc = step(doc, token)
	}
	return doc
}
