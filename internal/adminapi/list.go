package adminapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

// Page sizes (specification, Limits), in records.
const (
	defaultPage = 25
	maxPage     = 100
)

// maxPageBytes is the maximum size of a page, in bytes of JSON. A page of large records ends early, but has at least
// one record.
const maxPageBytes = 8 << 20

// pageParams returns the query parameters that every list has.
func pageParams() []queryParam {
	return []queryParam{countParam("limit", "Maximum number of records on a page.", defaultPage, maxPage), {
		name: "cursor", doc: "next_cursor of the previous page. All other parameters except limit must be the same as for that page.",
		schema: textSchema(),
		check: func(v string) error {
			if _, _, valid := cutCursor(v); !valid {
				return invalidCursor()
			}
			return nil
		},
	}}
}

// countParam returns a query parameter that takes a whole number from 1 to most.
func countParam(name, doc string, fallback, most int) queryParam {
	return queryParam{
		name: name, doc: doc,
		schema: &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: bound(1), Maximum: bound(float64(most)), Default: fallback},
		check: func(v string) error {
			if n, err := strconv.Atoi(v); err != nil || n < 1 || n > most || strconv.Itoa(n) != v {
				return fault.Invalid(name, "must be an integer between 1 and %d", most)
			}
			return nil
		},
	}
}

// textSchema returns the schema of a parameter that takes any non-empty text.
func textSchema() *huma.Schema {
	one := 1
	return &huma.Schema{Type: huma.TypeString, MinLength: &one}
}

func bound(n float64) *float64 { return &n }

// enumParam returns a query parameter that takes one of values.
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

// join joins values with commas, and the last two with the separator last.
func join(values []string, last string) string {
	if len(values) < 2 {
		return strings.Join(values, "")
	}
	n := len(values) - 1
	return strings.Join(values[:n], ", ") + last + values[n]
}

// page returns one page of a list. It reads one record more than the page holds,
// to learn whether there is a next page. A page of large records ends early. The cursor is bound to the name of the
// list, the account and filters. present returns a record's position in the list,
// after which another page can start, and its JSON form.
func page[T, R any](c *call, name, filters string, read func(control.Page) ([]T, error), present func(*T) (string, R)) (response, error) {
	limit := defaultPage
	if v := c.query.Get("limit"); v != "" {
		limit, _ = strconv.Atoi(v) // checked by pageParams
	}
	binding := cursorBindingOf(c, name, filters)
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
	first := func(n int) ([]byte, error) { // encodes a page of so many records
		out := list[R]{Data: []R{}}
		for i := range n {
			_, record := present(&records[i])
			out.Data = append(out.Data, record)
		}
		if n < len(records) {
			after, _ := present(&records[n-1])
			cursor := encodeCursor(binding, after)
			out.NextCursor = &cursor
		}
		if c.completeness.Missing != "" {
			return encode(recordedList[R]{out.Data, out.NextCursor, true, c.completeness.Missing})
		}
		return encode(out)
	}
	n := min(limit, len(records))
	content, err := first(n)
	for err == nil && len(content) > maxPageBytes && n > 1 {
		// Records are of different sizes, so this may have to be repeated.
		n = max(1, min(n-1, n*maxPageBytes/len(content)))
		content, err = first(n)
	}
	return response{status: http.StatusOK, raw: content}.with("Content-Type", jsonType), err
}

// cursorBindingOf returns what the cursors of a list are bound to.
func cursorBindingOf(c *call, name, filters string) string {
	return name + "\x00" + c.actor.Account.ID + "\x00" + filters
}

// A cursor is the position in the list after which the next page starts, preceded
// by a checksum of the position and of what the cursor is bound to. The checksum
// detects damaged and mixed-up cursors. It is not a secret: knowing a position
// gives access to nothing.
const checksumLen = 12

func encodeCursor(binding, after string) string {
	sum := cursorChecksum(binding, after)
	return base64.RawURLEncoding.EncodeToString(append(sum, after...))
}

func decodeCursor(binding, cursor string) (after string, ok bool) {
	sum, after, ok := cutCursor(cursor)
	return after, ok && bytes.Equal(cursorChecksum(binding, after), sum)
}

// cutCursor splits a cursor into its checksum and its position.
func cutCursor(cursor string) (sum []byte, after string, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(raw) <= checksumLen || strings.ContainsAny(cursor, "\r\n") {
		return nil, "", false
	}
	return raw[:checksumLen], string(raw[checksumLen:]), true
}

func cursorChecksum(binding, after string) []byte {
	sum := sha256.Sum256([]byte("keygate cursor 1\x00" + binding + "\x00" + after))
	return sum[:checksumLen]
}

func invalidCursor() error {
	return fault.Invalid("cursor", "is not a valid cursor for this list: use next_cursor of the previous page with the same filters, or omit it to start again")
}
