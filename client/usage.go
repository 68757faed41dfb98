package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// UsageFilter restricts usage records to matching records. Zero fields match all records, except those of State and
// Interval.
type UsageFilter struct {
	ListOptions
	OwnerID, KeyID, GatewayID string
	Meter                     string    // requests, bytes_in, bytes_out, or one of a cost
	State                     string    // final or open; "" means final
	Interval                  string    // 1h, or 1d for records of days, which are kept longer; "" means 1h
	Since, Until              time.Time // of the start of the period; Since is inclusive, Until exclusive
}

func (f *UsageFilter) query() url.Values {
	return filter("owner_id", f.OwnerID, "key_id", f.KeyID, "gateway_id", f.GatewayID, "meter", f.Meter, "state", f.State, "interval", f.Interval,
		"since", instant(f.Since), "until", instant(f.Until))
}

// UsageRecords lists usage records: how many units of each meter each key has used on each route in each hour. Final records
// come in the order in which they became final.
func (c *Client) UsageRecords(ctx context.Context, f UsageFilter) iter.Seq2[UsageEntry, error] {
	return list[UsageEntry](ctx, c, "/v1/usage-records", f.query(), f.PageSize)
}

// OpenUsageExport begins an export of the usage records that f matches, as they are at the time of the call. format is
// FormatJSONL, FormatCSV or FormatCloudEvents; f.PageSize does not matter. With a cursor of an earlier export, it has only
// the final records that the earlier one lacks; "" begins with the first. A cursor belongs to the filter that it was returned
// for: with another filter, the error is an *Error with status 422 and the field cursor.
//
// The caller must close the body, and read it without a pause of more than 30 seconds. A body that breaks off ends with an
// *UnreachableError, never with io.EOF. next is the cursor for a later export. It is valid only after the body was read to
// io.EOF: an earlier use of it loses records. It is "" for open records.
//
// If two exports of the account run already, of this list and the audit log together, the error is an *Error with status 429.
func (c *Client) OpenUsageExport(ctx context.Context, format string, f UsageFilter, cursor string) (body io.ReadCloser, next string, err error) {
	query := f.query()
	query.Set("format", format)
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	body, header, err := c.open(ctx, &Request{Method: http.MethodGet, Path: "/v1/usage-records?" + query.Encode()})
	if err != nil {
		return nil, "", err
	}
	return body, header.Get("X-Keygate-Cursor"), nil
}
