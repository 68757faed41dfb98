package client

import (
	"context"
	"errors"
	"iter"
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

// list iterates over all pages of a list. An error ends the iteration.
func list[T any](ctx context.Context, c *Client, path string, query url.Values, pageSize int) iter.Seq2[T, error] {
	if pageSize <= 0 || pageSize > maxPage {
		pageSize = maxPage
	}
	return func(yield func(T, error) bool) {
		q := url.Values{}
		for name, values := range query {
			q[name] = values
		}
		q.Set("limit", strconv.Itoa(pageSize))
		for {
			p, err := call[page[T]](ctx, c, http.MethodGet, path+"?"+q.Encode(), nil)
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
