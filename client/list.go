package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// page is one page of a list (contract, section 2).
type page[T any] struct {
	Data             []T     `json:"data"`
	NextCursor       *string `json:"next_cursor"`
	IncompleteReason string  `json:"incomplete_reason"`
}

// maxPage is the maximum number of records on a page.
const maxPage = 100

// ErrRepeatedCursor is the error of a list whose pages would never end: a next_cursor leads back to an
// earlier page.
var ErrRepeatedCursor = errors.New("the list does not end: its server, or a proxy before it, has sent the same next_cursor twice")

// list iterates over all pages of a list. An error ends the iteration.
func list[T any](ctx context.Context, c *Client, path string, query url.Values, pageSize int) iter.Seq2[T, error] {
	if pageSize <= 0 || pageSize > maxPage {
		pageSize = maxPage
	}
	return func(yield func(T, error) bool) {
		q := url.Values{}
		maps.Copy(q, query)
		q.Set("limit", strconv.Itoa(pageSize))
		seen := map[[sha256.Size]byte]bool{} // the cursors of all pages, which may be of any length
		for {
			p, err := do[page[T]](ctx, c, &Request{Method: http.MethodGet, Path: path + "?" + q.Encode(), most: maxPageBytes})
			if err != nil && c.waitToRetry(ctx, err) {
				continue
			}
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			c.incomplete(p.IncompleteReason)
			for _, record := range p.Data {
				if !yield(record, nil) {
					return
				}
			}
			if p.NextCursor == nil {
				return
			}
			digest := sha256.Sum256([]byte(*p.NextCursor))
			if seen[digest] {
				var zero T
				yield(zero, fmt.Errorf("GET %s: %w", path, ErrRepeatedCursor))
				return
			}
			seen[digest] = true
			q.Set("cursor", *p.NextCursor)
		}
	}
}

// maxRetryAfter is the longest Retry-After that a list waits for.
const maxRetryAfter = 10 * time.Second

// waitToRetry waits for the Retry-After of a 429 and reports whether to retry. A
// long list has more pages than the rate limit of a key allows at once.
func (c *Client) waitToRetry(ctx context.Context, err error) bool {
	var limited *Error
	if !errors.As(err, &limited) || limited.Status != http.StatusTooManyRequests || limited.RetryAfter <= 0 || limited.RetryAfter > maxRetryAfter {
		return false
	}
	wait := time.NewTimer(limited.RetryAfter)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// filter returns a query of alternating names and values, without the empty
// values.
func filter(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}
