package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"
)

// The formats of OpenAuditExport and OpenUsageExport.
const (
	FormatJSONL       = "jsonl"       // one record per line, each as in the list
	FormatCSV         = "csv"         // one record per line (RFC 4180), after a line with the names of the columns
	FormatCloudEvents = "cloudevents" // one structured CloudEvent per line, with the record as its data; not for OpenAuditExport
)

// ExportAuditLog returns all records of the audit log that f matches, oldest first, as the log
// is at the time of the call (contract, section 7). It is one call, which reads as fast as the
// loop does, and holds one record in memory; f.PageSize does not matter. The loop must not wait
// for more than 30 seconds between two records.
//
// A response that breaks off ends the loop with an *UnreachableError. To go on, export again with
// f.Since set a few seconds before the last record's time, and skip the records that were seen.
func (c *Client) ExportAuditLog(ctx context.Context, f AuditFilter) iter.Seq2[AuditEntry, error] {
	return func(yield func(AuditEntry, error) bool) {
		body, err := c.OpenAuditExport(ctx, FormatJSONL, f)
		if err != nil {
			yield(AuditEntry{}, err)
			return
		}
		defer body.Close()
		records := bufio.NewScanner(body)
		records.Buffer(make([]byte, 64<<10), maxRecordBytes)
		for records.Scan() {
			var e AuditEntry
			if err := json.Unmarshal(records.Bytes(), &e); err != nil {
				yield(AuditEntry{}, fmt.Errorf("decode an audit record: %w", err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if err := records.Err(); errors.Is(err, bufio.ErrTooLong) {
			yield(AuditEntry{}, fmt.Errorf("%w: an audit record has more than %d MiB", ErrTooLarge, maxRecordBytes>>20))
		} else if err != nil {
			yield(AuditEntry{}, err)
		}
	}
}

// maxRecordBytes limits a line of an export. The diff of a record has at most the size of the call's body.
const maxRecordBytes = 16 << 20

// OpenAuditExport begins an export of the records of the audit log that f matches, oldest first
// (contract, section 7). format is FormatJSONL or FormatCSV. The caller must close the body, and
// read it without a pause of more than 30 seconds. A body that breaks off ends with an
// *UnreachableError, never with io.EOF.
//
// If two exports of the account run already, it returns an *Error with status 429.
func (c *Client) OpenAuditExport(ctx context.Context, format string, f AuditFilter) (io.ReadCloser, error) {
	query := f.query()
	query.Set("format", format)
	body, _, err := c.open(ctx, &Request{Method: http.MethodGet, Path: "/v1/audit-log?" + query.Encode()})
	return body, err
}

// open makes a call and returns the body and the header of its response. The body may be of any length. It makes
// one attempt. Config.Timeout limits the time until the response begins, and the time without
// any data.
func (c *Client) open(ctx context.Context, r *Request) (io.ReadCloser, http.Header, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stalled := time.AfterFunc(c.cfg.Timeout, func() { cancel(fmt.Errorf("no data for %s", c.cfg.Timeout)) })
	req, err := c.request(ctx, r, "")
	if err != nil {
		cancel(nil)
		return nil, nil, err
	}
	res, err := c.http.Do(req) //nolint:bodyclose // the caller closes it
	stalled.Stop()
	if err != nil {
		err = cmp.Or(context.Cause(ctx), err)
		cancel(nil)
		return nil, nil, &UnreachableError{URL: c.base.String(), Err: withoutURL(err)}
	}
	body := &streamBody{client: c, body: res.Body, stalled: stalled, cancel: cancel}
	if res.StatusCode < http.StatusMultipleChoices {
		c.incomplete(res.Header.Get("X-Keygate-Incomplete"))
		return body, res.Header, nil
	}
	defer func() { _ = body.Close() }()
	content, err := c.readBody(body, r, maxErrorBytes)
	if err != nil && !errors.Is(err, ErrTooLarge) {
		return nil, nil, err
	}
	return nil, nil, errorOf(res, content)
}

// streamBody is the body of a response of any length.
type streamBody struct {
	client  *Client
	body    io.ReadCloser
	stalled *time.Timer
	cancel  context.CancelCauseFunc
}

// Read implements io.Reader. Its error is io.EOF only at the end of the response.
func (b *streamBody) Read(p []byte) (int, error) {
	b.stalled.Reset(b.client.cfg.Timeout)
	n, err := b.body.Read(p)
	b.stalled.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = &UnreachableError{URL: b.client.base.String(), Err: fmt.Errorf("the response broke off: %w", err)}
	}
	return n, err
}

// Close implements io.Closer.
func (b *streamBody) Close() error {
	b.stalled.Stop()
	err := b.body.Close()
	b.cancel(nil)
	return err
}
