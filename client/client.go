package client

import (
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

// Config is what a Client is made of.
type Config struct {
	// URL is the address of the management API, as in http://127.0.0.1:8081.
	// Required.
	URL string
	// Key is an account-level API key. Without one only the API document can be
	// had.
	Key string
	// UserAgent names the program that calls. Empty is keygate-go.
	UserAgent string
	// Source is recorded as what made a push: cli or dashboard. Empty is api
	// (contract, section 5).
	Source string
	// Timeout bounds each attempt of a call, body included. Zero is 60 s.
	Timeout time.Duration
	// Retries is how many times a call is tried again after a connection
	// failed, where that cannot do anything twice: a call that was never sent,
	// a GET, and a POST, which carries an Idempotency-Key. Zero is 2; -1 is
	// none.
	Retries int
	// HTTPClient sends the requests; its Timeout and CheckRedirect are not
	// used. Nil is a client of its own.
	HTTPClient *http.Client
}

// Client calls the management API. It is safe for concurrent use.
type Client struct {
	cfg  Config
	base *url.URL
	http *http.Client
}

// New returns a client over cfg. It fails if the URL cannot be used.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("%q is no server address: write http:// or https:// and a host, as in http://127.0.0.1:8081", cfg.URL)
	}
	if base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("%q is no server address: leave out user, query and fragment", cfg.URL)
	}
	base.Path = strings.TrimRight(base.Path, "/")
	if strings.TrimFunc(cfg.Key, func(r rune) bool { return r > ' ' && r < 0x7f }) != "" {
		return nil, errors.New("the key holds a character that no key has: give the key alone")
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "keygate-go"
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 60 * time.Second
	}
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
	// A redirect would take the key to where it was not meant to go.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http.Timeout = 0
	return c, nil
}

// Request is one call of the API.
type Request struct {
	Method      string
	Path        string // from /v1 on, with its query, as in /v1/keys?state=active
	Body        []byte // nil for none
	ContentType string // of Body; empty is application/json
	Header      http.Header
}

// Response is the answer to a call that succeeded.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// maxResponseBytes bounds the memory that a server can make a client use.
const maxResponseBytes = 256 << 20

// Do makes a call. A status of 400 or more is an *Error; a server that cannot be
// reached is an *UnreachableError.
func (c *Client) Do(ctx context.Context, r *Request) (*Response, error) {
	idempotencyKey := r.Header.Get("Idempotency-Key")
	if r.Method == http.MethodPost && idempotencyKey == "" {
		idempotencyKey = rand.Text()
	}
	for attempt := 0; ; attempt++ {
		res, err := c.try(ctx, r, idempotencyKey)
		var lost *UnreachableError
		if !errors.As(err, &lost) || attempt >= c.cfg.Retries || ctx.Err() != nil || !retryable(r.Method, lost) {
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

// retryable tells whether a call that got no answer can be made again without
// doing anything twice.
func retryable(method string, lost *UnreachableError) bool {
	if method == http.MethodGet || method == http.MethodPost {
		return true
	}
	var op *net.OpError
	return errors.As(lost.Err, &op) && op.Op == "dial"
}

func (c *Client) try(ctx context.Context, r *Request, idempotencyKey string) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	var body io.Reader = http.NoBody
	if r.Body != nil {
		body = strings.NewReader(string(r.Body))
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, c.base.String()+r.Path, body)
	if err != nil {
		return nil, fmt.Errorf("make the request %s %s: %w", r.Method, r.Path, err)
	}
	for name, values := range r.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if r.Body != nil {
		contentType := r.ContentType
		if contentType == "" {
			contentType = "application/json"
		}
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

	res, err := c.http.Do(req)
	if err != nil {
		return nil, &UnreachableError{URL: c.base.String(), Err: withoutURL(err)}
	}
	defer res.Body.Close()
	content, err := io.ReadAll(io.LimitReader(res.Body, maxResponseBytes))
	if err != nil {
		return nil, &UnreachableError{URL: c.base.String(), Err: err}
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return nil, errorOf(res, content)
	}
	return &Response{res.StatusCode, res.Header, content}, nil
}

// withoutURL takes what net/http puts in front of an error away: the request's
// method and address, which the caller names itself.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// call makes a call with in as its JSON body, unless it is nil, and reads the
// answer as a T.
func call[T any](ctx context.Context, c *Client, method, path string, in any) (*T, error) {
	r := &Request{Method: method, Path: path}
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode the body of %s %s: %w", method, path, err)
		}
		r.Body = body
	}
	return do[T](ctx, c, r)
}

func do[T any](ctx context.Context, c *Client, r *Request) (*T, error) {
	res, err := c.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := json.Unmarshal(res.Body, out); err != nil {
		return nil, fmt.Errorf("read the answer to %s %s: is %s a Keygate server? %w", r.Method, r.Path, c.base, err)
	}
	return out, nil
}
