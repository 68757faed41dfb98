package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config configures a Client.
type Config struct {
	// URL is the address of the management API, as in http://127.0.0.1:8081.
	// Required. It may have a path, but no user, query or fragment.
	URL string
	// Key is an account-level API key, or the token of a user. Without one, only the OpenAPI document
	// can be read, and users can sign in.
	Key string
	// UserAgent is the value of the User-Agent header. Empty means keygate-go.
	UserAgent string
	// Source is recorded as the source of pushes and rollbacks: cli or dashboard.
	// Empty means api (contract, section 5).
	Source string
	// Timeout limits each attempt of a call, including the response body. Zero
	// means 60 seconds.
	Timeout time.Duration
	// Retries is the maximum number of retries after a connection failed. A call
	// is retried only if that cannot execute it twice: if no connection could be
	// made, for a GET, and for a POST other than Try, which has an Idempotency-Key. Zero means 2;
	// a negative number means no retries.
	Retries int
	// Incomplete is called with the reason if a list or report lacks the newest records, because
	// the server's store did not take them. It may be nil.
	Incomplete func(reason string)
	// HTTPClient sends the requests. Its Timeout and CheckRedirect are ignored.
	// Nil means a client with default settings.
	HTTPClient *http.Client
}

func (c *Client) incomplete(reason string) {
	if reason != "" && c.cfg.Incomplete != nil {
		c.cfg.Incomplete(reason)
	}
}

// Client is a client for the management API. It is safe for concurrent use.
type Client struct {
	cfg  Config
	base *url.URL
	http *http.Client
}

// New returns a Client. It fails if cfg.URL is not a valid server address or
// cfg.Key contains a space or a character that is not printable ASCII.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("%q is not a valid server address: it must be http:// or https:// and a host, as in http://127.0.0.1:8081", withoutUser(cfg.URL))
	}
	if base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("%q is not a valid server address: remove the user, query and fragment", withoutUser(cfg.URL))
	}
	base.Path = strings.TrimRight(base.Path, "/")
	if strings.TrimFunc(cfg.Key, func(r rune) bool { return r > ' ' && r < 0x7f }) != "" {
		return nil, errors.New("the API key contains a character that is not allowed in a key: give only the key, without spaces or line breaks")
	}
	cfg.UserAgent = cmp.Or(cfg.UserAgent, "keygate-go")
	cfg.Timeout = cmp.Or(cfg.Timeout, 60*time.Second)
	switch {
	case cfg.Retries == 0:
		cfg.Retries = 2
	case cfg.Retries < 0:
		cfg.Retries = 0
	}
	c := &Client{cfg: cfg, base: base, http: &http.Client{}}
	if cfg.HTTPClient != nil {
		*c.http = *cfg.HTTPClient
	}
	// Following a redirect would send the key to another address.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http.Timeout = 0
	return c, nil
}

// withoutUser returns an address for an error, without the user and password that it may have.
func withoutUser(address string) string {
	if at := strings.LastIndexByte(address, '@'); at >= 0 {
		return "…" + address[at:]
	}
	return address
}

// Request is a request for Do.
type Request struct {
	Method      string
	Path        string      // path and query after Config.URL, as in /v1/keys?state=active
	Body        []byte      // nil means no body
	ContentType string      // of Body; empty means application/json
	Header      http.Header // additional headers; may be nil

	most  int64         // bytes of the response; 0 means maxResponseBytes
	once  bool          // each attempt has an effect, whatever its Idempotency-Key
	waits time.Duration // that the server may take beyond Config.Timeout
}

// Response is the response to a successful call.
type Response struct {
	Status int // 200 to 299
	Header http.Header
	Body   []byte
}

// The most bytes of a response that a Client reads into memory. A larger body is an error, since the
// server sends none so large; only the bodies of OpenAuditExport have no limit.
const (
	maxErrorBytes    = 1 << 20   // of an error response
	maxPageBytes     = 16 << 20  // of a page of a list
	maxResponseBytes = 256 << 20 // of any other response, such as a document
)

// ErrTooLarge is the cause of the error of a response that is larger than a Client reads.
var ErrTooLarge = errors.New("the response is too large")

// Do sends a request with the client's key and returns the response. It adds an
// Idempotency-Key to a POST that has none. It returns an *Error for a status of
// 300 or more, since redirects are not followed, and an *UnreachableError if there
// was no complete response.
func (c *Client) Do(ctx context.Context, r *Request) (*Response, error) {
	idempotencyKey := r.Header.Get("Idempotency-Key")
	if r.Method == http.MethodPost && idempotencyKey == "" {
		idempotencyKey = rand.Text()
	}
	for attempt := 0; ; attempt++ {
		res, err := c.try(ctx, r, idempotencyKey)
		var unreachable *UnreachableError
		if !errors.As(err, &unreachable) || attempt >= c.cfg.Retries || ctx.Err() != nil || !retryable(r, unreachable) {
			return res, err
		}
		wait := time.NewTimer(100 * time.Millisecond << attempt)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil, err
		}
	}
}

// retryable reports whether a call that got no response can be retried without
// being executed twice.
func retryable(r *Request, err *UnreachableError) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodPost && !r.once {
		return true
	}
	var op *net.OpError
	return errors.As(err.Err, &op) && op.Op == "dial"
}

// try makes one attempt of a call.
func (c *Client) try(ctx context.Context, r *Request, idempotencyKey string) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout+r.waits)
	defer cancel()
	req, err := c.request(ctx, r, idempotencyKey)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, &UnreachableError{URL: c.base.String(), Err: withoutURL(err)}
	}
	defer res.Body.Close()
	if res.StatusCode >= http.StatusMultipleChoices {
		content, err := c.readBody(res.Body, r, maxErrorBytes)
		if err != nil && !errors.Is(err, ErrTooLarge) { // whatever is that large is not an error of Keygate
			return nil, err
		}
		return nil, errorOf(res, content)
	}
	content, err := c.readBody(res.Body, r, cmp.Or(r.most, maxResponseBytes))
	if err != nil {
		return nil, err
	}
	return &Response{res.StatusCode, res.Header, content}, nil
}

// readBody reads the body of the response to r, of at most so many bytes. Its error wraps ErrTooLarge if
// there are more, and is an *UnreachableError if the body breaks off.
func (c *Client) readBody(body io.Reader, r *Request, most int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(body, most+1))
	switch {
	case errors.As(err, new(*UnreachableError)):
		return nil, err
	case err != nil:
		return nil, &UnreachableError{URL: c.base.String(), Err: err}
	case int64(len(content)) > most:
		return nil, fmt.Errorf("%s %s: %w: it has more than %d MiB; is %s the address of a Keygate server?", r.Method, r.Path, ErrTooLarge, most>>20, c.base)
	}
	return content, nil
}

// request returns the HTTP request of an attempt.
func (c *Client) request(ctx context.Context, r *Request, idempotencyKey string) (*http.Request, error) {
	var body io.Reader = http.NoBody
	if r.Body != nil {
		body = strings.NewReader(string(r.Body))
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, c.base.String()+r.Path, body)
	if err != nil {
		return nil, fmt.Errorf("create request %s %s: %w", r.Method, r.Path, err)
	}
	for name, values := range r.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if r.Body != nil {
		contentType := cmp.Or(r.ContentType, "application/json")
		req.Header.Set("Content-Type", contentType)
	}
	if c.cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Key)
	}
	if c.cfg.Source != "" {
		req.Header.Set("X-Keygate-Source", c.cfg.Source)
	}
	if idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", idempotencyKey)
	}
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	return req, nil
}

// withoutURL removes the method and address that net/http adds to an error. An
// UnreachableError has the address already.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// call makes a call with in as its JSON body, or without a body if in is nil, and
// decodes the response into a T.
func call[T any](ctx context.Context, c *Client, method, path string, in any, options ...Option) (*T, error) {
	r := &Request{Method: method, Path: path}
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode the request body of %s %s: %w", method, path, err)
		}
		r.Body = body
	}
	return do[T](ctx, c, r.with(options))
}

// do makes a call and decodes the response into a T.
func do[T any](ctx context.Context, c *Client, r *Request) (*T, error) {
	out, _, err := doWithETag[T](ctx, c, r)
	return out, err
}

// doWithETag makes a call and decodes the response into a T. It also returns the ETag of the
// response, or "".
func doWithETag[T any](ctx context.Context, c *Client, r *Request) (*T, string, error) {
	res, err := c.Do(ctx, r)
	if err != nil {
		return nil, "", err
	}
	if res.Status == http.StatusAccepted {
		return nil, "", notDrained(res)
	}
	out := new(T)
	if err := json.Unmarshal(res.Body, out); err != nil {
		return nil, "", fmt.Errorf("decode the response to %s %s: %w; is %s the address of a Keygate server?", r.Method, r.Path, err, c.base)
	}
	return out, res.Header.Get("ETag"), nil
}
