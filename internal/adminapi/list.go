package adminapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

// The sizes of a page (specification, Limits).
const (
	defaultPage = 25
	maxPage     = 100
)

// pageParams are the parameters of every list.
func pageParams() []queryParam {
	return []queryParam{{
		name: "limit", doc: "How many records a page holds at most.",
		schema: &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: bound(1), Maximum: bound(maxPage), Default: defaultPage},
		check: func(v string) error {
			if n, err := strconv.Atoi(v); err != nil || n < 1 || n > maxPage || strconv.Itoa(n) != v {
				return fault.Invalid("limit", "must be a whole number from 1 to %d", maxPage)
			}
			return nil
		},
	}, {
		name: "cursor", doc: "next_cursor of the page before; the other parameters but limit must be the same.",
		schema: textSchema(),
		check: func(v string) error {
			if v == "" {
				return invalidCursor()
			}
			return nil
		},
	}}
}

// textSchema is that of a parameter that takes any text but the empty one.
func textSchema() *huma.Schema {
	one := 1
	return &huma.Schema{Type: huma.TypeString, MinLength: &one}
}

func bound(n float64) *float64 { return &n }

// enumParam is a filter that takes one of values.
func enumParam(name, doc string, values ...string) queryParam {
	schema := &huma.Schema{Type: huma.TypeString}
	for _, v := range values {
		schema.Enum = append(schema.Enum, v)
	}
	return queryParam{name: name, doc: doc, schema: schema, check: func(v string) error {
		if !slices.Contains(values, v) {
			return fault.Invalid(name, "must be %s", joinOr(values))
		}
		return nil
	}}
}

// joinOr joins values as "a, b or c".
func joinOr(values []string) string { return join(values, " or ") }

func join(values []string, last string) string {
	if len(values) < 2 {
		return strings.Join(values, "")
	}
	n := len(values) - 1
	return strings.Join(values[:n], ", ") + last + values[n]
}

// page answers a list call: it reads one record more than the page holds, to
// learn whether there is a next page. what names the list and filters
// everything beside it that the cursor is bound to; show gives a record's
// findPath in the list and its face.
func page[T, R any](c *call, what, filters string, read func(control.Page) ([]T, error), show func(*T) (string, R)) (response, error) {
	limit := defaultPage
	if v := c.query.Get("limit"); v != "" {
		limit, _ = strconv.Atoi(v) // checked by pageParams
	}
	binding := what + "\x00" + c.caller.Account.ID + "\x00" + filters
	p := control.Page{Limit: limit + 1}
	if v := c.query.Get("cursor"); v != "" {
		after, valid := decodeCursor(binding, v)
		if !valid {
			return response{}, invalidCursor()
		}
		p.After = after
	}
	records, err := read(p)
	if err != nil {
		return response{}, err
	}
	out := list[R]{Data: []R{}}
	for i := range records {
		if i == limit {
			after, _ := show(&records[i-1])
			cursor := encodeCursor(binding, after)
			out.NextCursor = &cursor
			break
		}
		_, face := show(&records[i])
		out.Data = append(out.Data, face)
	}
	return ok(out), nil
}

// A cursor is the place in the list after which the next page begins, behind a
// checksum over it and all that it is bound to. The checksum finds damage and
// mix-ups; it keeps no secret, since a place alone opens nothing.
const checksumLen = 12

func encodeCursor(binding, after string) string {
	sum := cursorChecksum(binding, after)
	return base64.RawURLEncoding.EncodeToString(append(sum, after...))
}

func decodeCursor(binding, cursor string) (after string, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(raw) <= checksumLen || strings.ContainsAny(cursor, "\r\n") {
		return "", false
	}
	after = string(raw[checksumLen:])
	return after, bytes.Equal(cursorChecksum(binding, after), raw[:checksumLen])
}

func cursorChecksum(binding, after string) []byte {
	sum := sha256.Sum256([]byte("keygate cursor 1\x00" + binding + "\x00" + after))
	return sum[:checksumLen]
}

func invalidCursor() error {
	return fault.Invalid("cursor", "is no cursor of this list: give next_cursor of the page before with the same filters, or leave it out")
}
