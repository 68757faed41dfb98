package adminapi

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Bounds of a request that is tried (docs/limits.md). triesPerAccount and triesInAll are further ones.
const (
	maxTryBody = 64 << 10 // bytes of each body, of the request and the response
	maxTryPath = 8 << 10  // bytes, with the query
	maxTryKey  = 512      // bytes
	tryTime    = 30 * time.Second
)

type tryRequest struct {
	Method  string            `json:"method" minLength:"1" maxLength:"32" doc:"HTTP method, in capital letters." example:"GET"`
	Path    string            `json:"path" minLength:"1" doc:"Path and query, as they are sent; at most 8 KiB." example:"/orders/17?full=true"`
	Headers map[string]string `json:"headers,omitempty" doc:"Headers of the request, at most 100. Host, and those that frame the message, are hop-by-hop, or are set by Keygate, are refused."`
	Body    *string           `json:"body,omitempty" doc:"Body of the request, at most 64 KiB."`
	Key     *string           `json:"key,omitempty" doc:"Key of the caller, which is sent in the first of the gateway's key_headers. Without it the request has no key."`
}

// tryRecord is the response to a request that was tried.
type tryRecord struct {
	Status     int                     `json:"status" doc:"HTTP status of the response." example:"200"`
	Headers    map[string]headerValues `json:"headers" nullable:"false" doc:"Headers of the response, each with its values."`
	Body       string                  `json:"body" doc:"Body of the response: its first 64 KiB, as they are; a compressed body is not decompressed."`
	BodyBase64 bool                    `json:"body_base64" doc:"true if body is in base64, because the body is not text in UTF-8."`
	Truncated  bool                    `json:"truncated" doc:"true if the body is longer, did not end within 30 seconds, or broke off."`
	DurationMS float64                 `json:"duration_ms" doc:"From the first byte of the request to the last byte of the response that is shown, in milliseconds." example:"12.4"`
	RequestID  string                  `json:"request_id" doc:"Identifier of the request, from the X-Request-Id header of its response." example:"req_01jz8y5c3te9b8r2m6q4v7x0ff"`
	Decision   *tryDecisionRecord      `json:"decision" doc:"If the request was refused or failed: why, as in GET /v1/requests/{request_id}. null if it passed, or is not in that log."`
}

// tryDecisionRecord is a DecisionRecord that may be null.
type tryDecisionRecord struct {
	_ struct{} `nullable:"true"`
	DecisionRecord
}

// headerValues are the values of one header.
type headerValues []string

// Schema implements huma.SchemaProvider.
func (headerValues) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}}
}

func (a *API) tryOperations() []operation {
	return []operation{{
		id: "tryGateway", method: http.MethodPost, path: "/v1/gateways/{gateway_id}/try", tag: "Gateways",
		summary: "Send a request to a gateway",
		description: "Sends one request through the data plane of the node that gets the call, with the gateway's hostname as the Host and the address of the calling client, and returns the response. " +
			"The request is checked, charged, counted and logged like any other. The audit log records its method and path; nothing of the key, the headers and the bodies is kept. " +
			"One request of an account runs at a time, and 4 in all; further ones are 429. A gateway that sends no response within 30 seconds is a 503. Repeating the call sends another request: an Idempotency-Key has no effect.",
		body: reflect.TypeFor[tryRequest](), success: http.StatusOK, result: reflect.TypeFor[tryRecord](),
		run: takes(a.tryGateway),
	}}
}

func (a *API) tryGateway(c *call, req tryRequest) (response, error) {
	if err := req.check(); err != nil {
		return response{}, err
	}
	g, err := a.cfg.Control.Gateway(c.ctx, &c.actor, c.params["gateway_id"])
	if err != nil {
		return response{}, err
	}
	if err := req.checkKeyHeaders(g.Requests.AllKeyHeaders()); err != nil {
		return response{}, err
	}
	if a.cfg.Dial == nil {
		return response{}, fault.New(fault.Unavailable, "this node has no data plane: send the call to a node that serves gateways")
	}
	release, err := c.take(a.bounds.tries, triesPerAccount, "too many requests are being tried: %d of an account runs at a time, and few in all; retry after the seconds in the Retry-After header")
	if err != nil {
		return response{}, err
	}
	defer release()
	path, _, _ := strings.Cut(req.Path, "?")
	if err := a.cfg.Control.RecordTry(c.ctx, &c.actor, g.ID, req.Method, path); err != nil {
		return response{}, err
	}
	record, err := a.sendTry(c, req.outgoing(g))
	if err != nil {
		return response{}, err
	}
	if record.Status >= http.StatusBadRequest && record.RequestID != "" {
		refused, err := a.cfg.Control.Request(c.ctx, &c.actor, record.RequestID)
		switch {
		case err == nil:
			record.Decision = &tryDecisionRecord{DecisionRecord: presentDecision(&refused.Decision)}
		case fault.CodeOf(err) != fault.NotFound: // the response is worth more than the reason
			a.cfg.Log.Warn("the decision about a request that was tried cannot be read", "request_id", record.RequestID, "error", err)
		}
	}
	return ok(record), nil
}

// check checks everything but the headers that hold a key.
func (r *tryRequest) check() error {
	problems := []error{checkTryPath(r.Path), gateway.CheckRequestHeaders("headers", r.Headers)}
	switch {
	case strings.Trim(r.Method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" || r.Method == "":
		problems = append(problems, fault.Invalid("method", "must be a method in capital letters, such as GET"))
	case r.Method == http.MethodConnect:
		problems = append(problems, fault.Invalid("method", "must not be CONNECT: gateways refuse it"))
	}
	if len(value(r.Body)) > maxTryBody {
		problems = append(problems, fault.Invalid("body", "must have at most %d bytes", maxTryBody))
	}
	if key := r.Key; key != nil && (*key == "" || len(*key) > maxTryKey || !visible(*key)) {
		problems = append(problems, fault.Invalid("key", "must have 1 to %d printable ASCII characters and no spaces: give only the key, or leave key out", maxTryKey))
	}
	return fault.Join(problems...)
}

// checkKeyHeaders refuses headers that the key would replace.
func (r *tryRequest) checkKeyHeaders(names []string) error {
	if r.Key == nil {
		return nil
	}
	var problems []error
	for name := range r.Headers {
		for _, of := range names {
			if strings.EqualFold(name, of) {
				problems = append(problems, fault.Invalid("headers."+name, "the gateway reads the key from this header: give key or this header, not both"))
			}
		}
	}
	return fault.Join(problems...)
}

// checkTryPath checks the path and query of a request.
func checkTryPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return fault.Invalid("path", "must begin with a slash, such as /orders")
	case len(path) > maxTryPath:
		return fault.Invalid("path", "must have at most %d bytes", maxTryPath)
	case !visible(path) || strings.Contains(path, "#"):
		return fault.Invalid("path", "must be as it is sent: percent-encode spaces, # and what is not ASCII")
	}
	if _, err := url.ParseRequestURI(path); err != nil {
		return fault.Invalid("path", "must be as it is sent: %% must begin a percent-encoded character, such as %%20")
	}
	return nil
}

// visible reports whether s has visible ASCII characters only.
func visible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// outgoing returns the request as it is sent to g.
func (r *tryRequest) outgoing(g *gateway.Gateway) *http.Request {
	target := &url.URL{Opaque: r.Path} // written as it is
	if strings.HasPrefix(r.Path, "//") {
		target = &url.URL{Path: r.Path} // of an opaque form it would be the authority
	}
	header := http.Header{"User-Agent": {"Keygate-Try"}}
	for name, value := range r.Headers {
		header.Set(name, value)
	}
	if r.Key != nil {
		name, value := g.Requests.AllKeyHeaders()[0], *r.Key
		if strings.EqualFold(name, gateway.Authorization) {
			value = "Bearer " + value
		}
		header.Set(name, value)
	}
	out := &http.Request{Method: r.Method, URL: target, Host: g.Hostname, Header: header, Close: true, Body: http.NoBody}
	if body := value(r.Body); body != "" {
		out.Body, out.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	return out
}

// sendTry sends a request to the data plane and reads the response, within tryTime.
func (a *API) sendTry(c *call, req *http.Request) (*tryRecord, error) {
	ctx, cancel := context.WithTimeout(c.ctx, tryTime)
	defer cancel()
	client, _ := netip.ParseAddr(c.actor.ClientIP) // the zero Addr if it is not known
	conn, err := a.cfg.Dial(ctx, client)
	if err != nil {
		return nil, &fault.Error{Code: fault.Unavailable, Message: "this node's data plane takes no further connection: try again", Err: err}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	begin := time.Now()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = req.Write(conn) // the gateway may respond before it has the body
	}()
	defer func() {
		_ = conn.Close()
		<-sent
	}()
	in := bufio.NewReader(conn)
	res, err := finalResponse(in, req) //nolint:bodyclose // closing the connection ends it; Close would read an endless body
	if err != nil {
		if c.ctx.Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, fault.New(fault.Unavailable, "the gateway sent no response within %s", tryTime)
		}
		return nil, &fault.Error{Code: fault.Unavailable, Message: "the data plane closed the connection without a response: try again", Err: err}
	}
	body, readErr := io.ReadAll(io.LimitReader(res.Body, maxTryBody+1))
	took := time.Since(begin)
	truncated := readErr != nil || len(body) > maxTryBody
	if !truncated {
		_, _ = io.Copy(io.Discard, in) // the data plane closes the connection once the request is recorded
	}
	return presentTry(res, body[:min(len(body), maxTryBody)], truncated, took), nil
}

// finalResponse reads the response to req that is not an interim one.
func finalResponse(in *bufio.Reader, req *http.Request) (*http.Response, error) {
	for {
		res, err := http.ReadResponse(in, req)
		if err != nil {
			return nil, fmt.Errorf("read the response of the data plane: %w", err)
		}
		if res.StatusCode >= http.StatusOK {
			return res, nil
		}
	}
}

func presentTry(res *http.Response, body []byte, truncated bool, took time.Duration) *tryRecord {
	out := &tryRecord{
		Status: res.StatusCode, Headers: make(map[string]headerValues, len(res.Header)), Truncated: truncated,
		DurationMS: float64(took.Microseconds()) / 1000, RequestID: res.Header.Get("X-Request-Id"),
	}
	for name, values := range res.Header {
		if name != "Connection" { // of the connection to the data plane, which no client sees
			out.Headers[name] = values
		}
	}
	if text := wholeRunes(body, truncated); utf8.Valid(text) {
		out.Body = string(text)
	} else {
		out.Body, out.BodyBase64 = base64.StdEncoding.EncodeToString(body), true
	}
	return out
}

// wholeRunes returns body. If it is truncated, it leaves out the character at its end of which only a part is there.
func wholeRunes(body []byte, truncated bool) []byte {
	if !truncated {
		return body
	}
	for i := 1; i < utf8.UTFMax && i <= len(body); i++ {
		if tail := body[len(body)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return body[:len(body)-i]
			}
			break
		}
	}
	return body
}
