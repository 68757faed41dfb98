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

// page is one answer of a list (contract, section 2).
type page[T any] struct {
	Data       []T     `json:"data"`
	NextCursor *string `json:"next_cursor"`
}

// maxPage is the largest page that a server gives.
const maxPage = 100

// list walks all pages of a list. Each error ends it.
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

// waitToRetry waits as a refusal for too many calls asks to, and reports whether the
// call may be made again: a long list has more pages than a key may ask for at
// once.
func (c *Client) waitToRetry(ctx context.Context, err error) bool {
	var refusal *Error
	if !errors.As(err, &refusal) || refusal.Status != http.StatusTooManyRequests || refusal.RetryAfter <= 0 || refusal.RetryAfter > maxRetryAfter {
		return false
	}
	wait := time.NewTimer(refusal.RetryAfter)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// filter builds a query from names and values, leaving empty values out.
func filter(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}
