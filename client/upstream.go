package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Ejection says when failures in a row eject a target of an upstream (targets.md, section 3). It is either Off, or has
// the other fields; in a request, those that are zero have their defaults.
type Ejection struct {
	Off bool `json:"-"` // false in the API

	Failures   int64    `json:"failures,omitempty"`    // in a row that eject a target
	On         []string `json:"on,omitempty"`          // connect, reset, timeout, 502, 503, 504, grpc_unavailable
	Base       string   `json:"base,omitempty"`        // Go duration of the first ejection
	Max        string   `json:"max,omitempty"`         // Go duration of the longest one
	MaxPercent *int64   `json:"max_percent,omitempty"` // of the targets, for statuses and timeouts
}

// MarshalJSON returns false if e is Off, else an object.
func (e Ejection) MarshalJSON() ([]byte, error) {
	if e.Off {
		return []byte("false"), nil
	}
	type object Ejection
	return json.Marshal(object(e))
}

// UnmarshalJSON decodes false or an object.
func (e *Ejection) UnmarshalJSON(data []byte) error {
	*e = Ejection{}
	if string(data) == "false" {
		e.Off = true
		return nil
	}
	type object Ejection
	return json.Unmarshal(data, (*object)(e))
}

func upstreamPath(gatewayID, name string) string {
	return gatewayPath(gatewayID) + "/upstreams/" + url.PathEscape(name)
}

func targetPath(gatewayID, name, target string) string {
	return upstreamPath(gatewayID, name) + "/targets?url=" + url.QueryEscape(target)
}

// Upstreams lists the upstreams of a gateway (targets.md, section 1): the one with the name default, and then the others by
// their names.
func (c *Client) Upstreams(ctx context.Context, gatewayID string, o ListOptions) iter.Seq2[Upstream, error] {
	return list[Upstream](ctx, c, gatewayPath(gatewayID)+"/upstreams", nil, o.PageSize)
}

// Upstream returns one upstream.
func (c *Client) Upstream(ctx context.Context, gatewayID, name string) (*Upstream, error) {
	return call[Upstream](ctx, c, http.MethodGet, upstreamPath(gatewayID, name), nil)
}

// UpstreamWithETag returns one upstream and the ETag of its gateway, for IfMatch.
func (c *Client) UpstreamWithETag(ctx context.Context, gatewayID, name string) (*Upstream, string, error) {
	return doWithETag[Upstream](ctx, c, &Request{Method: http.MethodGet, Path: upstreamPath(gatewayID, name)})
}

// PutUpstream creates an upstream, or replaces it, and returns it. What p does not have gets its default, except for the
// targets of an upstream that exists, which stay. A gateway that has the most upstreams is an *Error with status 409.
func (c *Client) PutUpstream(ctx context.Context, gatewayID, name string, p UpstreamPatch, options ...Option) (*Upstream, error) {
	return call[Upstream](ctx, c, http.MethodPut, upstreamPath(gatewayID, name), p, options...)
}

// UpdateUpstream changes an upstream and returns it. If its secrets would be sent to another service than they were given
// for, and p does not give them again, the error is an *Error with status 422.
func (c *Client) UpdateUpstream(ctx context.Context, gatewayID, name string, p UpstreamPatch, options ...Option) (*Upstream, error) {
	return call[Upstream](ctx, c, http.MethodPatch, upstreamPath(gatewayID, name), p, options...)
}

// DeleteUpstream deletes an upstream and returns the record as it was before. The one with the name default, and one that a
// route names, is an *Error with status 409.
func (c *Client) DeleteUpstream(ctx context.Context, gatewayID, name string, options ...Option) (*Upstream, error) {
	return call[Upstream](ctx, c, http.MethodDelete, upstreamPath(gatewayID, name), nil, options...)
}

// AddTarget adds a target to an upstream, and returns the upstream. A target that the upstream has is an *Error with
// status 409.
func (c *Client) AddTarget(ctx context.Context, gatewayID, name string, in AddTargetRequest, options ...Option) (*Upstream, error) {
	return call[Upstream](ctx, c, http.MethodPost, upstreamPath(gatewayID, name)+"/targets", in, options...)
}

// TargetPatch is the body of UpdateTarget. Fields without a Change are unchanged.
type TargetPatch struct {
	Weight Change[int64] `json:"weight,omitzero"` // 1 to 1000; cleared: 1
	Backup Change[bool]  `json:"backup,omitzero"` // cleared: false
	Drain  Change[bool]  `json:"drain,omitzero"`  // true: no more requests; cleared: false

	Resolve Change[string] `json:"resolve,omitzero"` // none, a or srv; cleared: none
}

// UpdateTarget changes the target with the URL of an upstream, and returns the upstream.
func (c *Client) UpdateTarget(ctx context.Context, gatewayID, name, target string, p TargetPatch, options ...Option) (*Upstream, error) {
	return call[Upstream](ctx, c, http.MethodPatch, targetPath(gatewayID, name, target), p, options...)
}

// DeleteTarget removes the target with the URL from an upstream, and returns the upstream. The last one is an *Error with
// status 409.
func (c *Client) DeleteTarget(ctx context.Context, gatewayID, name, target string, options ...Option) (*Upstream, error) {
	return call[Upstream](ctx, c, http.MethodDelete, targetPath(gatewayID, name, target), nil, options...)
}

// ReturnTarget ends an ejection of the target with the URL on every node, and returns the upstream. If it is not ejected, nothing
// happens.
func (c *Client) ReturnTarget(ctx context.Context, gatewayID, name, target string) (*Upstream, error) {
	return call[Upstream](ctx, c, http.MethodPost, upstreamPath(gatewayID, name)+"/targets/return?url="+url.QueryEscape(target), nil)
}

// NotDrainedError is the error of a call with AwaitDrained after which requests are still in flight. The change was made.
type NotDrainedError struct {
	// InFlight has the number of requests, by the names of the nodes on which there are some; nil for a node that has not reported
	// since the change.
	InFlight map[string]*int64
}

// Error names the nodes.
func (e *NotDrainedError) Error() string {
	var texts []string
	for _, node := range slices.Sorted(maps.Keys(e.InFlight)) {
		text := node + " has not reported yet"
		if n := e.InFlight[node]; n != nil {
			text = fmt.Sprintf("%d on %s", *n, node)
		}
		texts = append(texts, text)
	}
	return "the target gets no more requests, but some are still in flight there: " + strings.Join(texts, ", ")
}

// notDrained returns the error of a response with status 202.
func notDrained(res *Response) error {
	var in InFlight
	if err := json.Unmarshal(res.Body, &in); err != nil {
		return fmt.Errorf("decode what is in flight: %w", err)
	}
	return &NotDrainedError{in.InFlight}
}
