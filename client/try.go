package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// TryRequest is the body of Try: a request to a gateway.
type TryRequest struct {
	Method  string            `json:"method"`            // in capital letters
	Path    string            `json:"path"`              // with the query, as they are sent
	Headers map[string]string `json:"headers,omitempty"` // at most 100
	Body    string            `json:"body,omitempty"`    // at most 64 KiB
	Key     string            `json:"key,omitempty"`     // of the caller; "" means none
}

// Try is the response of a gateway to a TryRequest.
type Try struct {
	Status     int                 `json:"status"`
	Headers    map[string][]string `json:"headers"`
	Body       string              `json:"body"`        // its first 64 KiB
	BodyBase64 bool                `json:"body_base64"` // Body is in base64, because it is not text
	Truncated  bool                `json:"truncated"`   // the body is longer, did not end within 30 s, or broke off
	DurationMs float64             `json:"duration_ms"`
	RequestID  string              `json:"request_id"`
	Decision   *Decision           `json:"decision"` // why the request was refused or failed; nil if it passed
}

// Try sends a request through the data plane of the node that gets the call, and returns the response. The request is
// charged and logged like any other; nothing of its key, headers and body is kept. Try is never retried: each
// call sends a request.
func (c *Client) Try(ctx context.Context, gatewayID string, in TryRequest) (*Try, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode the request body of a try: %w", err)
	}
	return do[Try](ctx, c, &Request{Method: http.MethodPost, Path: gatewayPath(gatewayID) + "/try", Body: body, once: true})
}
