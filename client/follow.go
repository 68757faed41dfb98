package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
)

// FollowedRequest is what FollowRequests returns: a request, or how many are missing before the next one.
type FollowedRequest struct {
	Request *LoggedRequest // nil if Skipped is given
	Skipped int64          // more came than could be read, or than the log keeps
}

// maxEventBytes limits a line of a stream. A request has at most 2 KiB of path.
const maxEventBytes = 1 << 20

// FollowRequests returns each request that is refused or fails from now on (contract, section 7). The
// loop ends without an error when the server shuts down, or when the key of the client is revoked
// or expires; a connection that breaks off ends it with an *UnreachableError. f.Since, f.Until
// and f.PageSize do not matter.
//
// The server sends something every 15 seconds: Config.Timeout must be longer. If 8 streams of the
// account run already, the error is an *Error with status 429.
func (c *Client) FollowRequests(ctx context.Context, f RequestFilter) iter.Seq2[FollowedRequest, error] {
	return func(yield func(FollowedRequest, error) bool) {
		body, _, err := c.open(ctx, &Request{Method: http.MethodGet, Path: "/v1/requests/stream?" + f.of().Encode()})
		if err != nil {
			yield(FollowedRequest{}, err)
			return
		}
		defer func() { _ = body.Close() }()
		events := eventReader{lines: bufio.NewScanner(body)}
		events.lines.Buffer(nil, maxEventBytes)
		for {
			r, err := events.next()
			if errors.Is(err, io.EOF) || !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// eventReader reads server-sent events of requests.
type eventReader struct{ lines *bufio.Scanner }

// next returns the next event that it knows. Its error is io.EOF at the end of the stream.
func (r *eventReader) next() (f FollowedRequest, err error) {
	var kind, data []byte
	for r.lines.Scan() {
		line := r.lines.Bytes()
		if field, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			kind = bytes.Clone(field)
		}
		if field, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			data = bytes.Clone(field)
		}
		if len(line) > 0 {
			continue
		}
		switch string(kind) {
		case "request":
			f.Request = &LoggedRequest{}
			err = json.Unmarshal(data, f.Request)
		case "skipped":
			var skipped struct {
				Count int64 `json:"count"`
			}
			err = json.Unmarshal(data, &skipped)
			f.Skipped = skipped.Count
		default: // a comment, or an event of a later version
			kind, data = nil, nil
			continue
		}
		if err != nil {
			return FollowedRequest{}, fmt.Errorf("decode an event of the stream: %w", err)
		}
		return f, nil
	}
	if err := r.lines.Err(); err != nil {
		return f, err
	}
	return f, io.EOF
}
