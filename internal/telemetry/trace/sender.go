package trace

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/keygate/keygate/internal/service"
)

const (
	maxResponse = 64 << 10 // bytes
	firstPause  = time.Second
	maxPause    = 8 * time.Second
)

// sender posts batches to the collector over OTLP/HTTP.
type sender struct {
	settings  *Settings
	transport *http.Transport
	client    *http.Client
}

func newSender(s *Settings) *sender {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: s.tls, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute}
	return &sender{settings: s, transport: transport, client: &http.Client{
		Transport: transport, Timeout: s.timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (s *sender) close() { s.transport.CloseIdleConnections() }

// send posts a batch, and retries with backoff and jitter until ctx ends if the failure
// may be temporary. refused is the number of spans that the collector rejected.
func (s *sender) send(ctx context.Context, body []byte) (refused uint64, err error) {
	if s.settings.gzip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(body); err != nil {
			return 0, fmt.Errorf("pack the spans: %w", err)
		}
		if err := w.Close(); err != nil {
			return 0, fmt.Errorf("pack the spans: %w", err)
		}
		body = packed.Bytes()
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		refused, wait, err := s.post(ctx, body)
		if err == nil || wait < 0 {
			return refused, err
		}
		// Half of the pause is random, so that many servers do not retry together.
		if !service.Wait(ctx, max(wait, pause/2+rand.N(pause/2))) {
			return 0, err
		}
	}
}

// post makes one attempt. If it fails, wait is the least time until the next attempt, or
// negative if another one would not help.
func (s *sender) post(ctx context.Context, body []byte) (refused uint64, wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.settings.endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return 0, -1, fmt.Errorf("make the request: %w", withoutURL(err))
	}
	for name, values := range s.settings.headers {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "keygate")
	if s.settings.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	res, err := s.client.Do(req)
	if err != nil {
		return 0, 0, withoutURL(err)
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, maxResponse))
	switch {
	case res.StatusCode >= 200 && res.StatusCode < 300:
		return rejected(body), 0, nil
	case err != nil:
		return 0, 0, fmt.Errorf("read the response of the collector: %w", err)
	}
	err = fmt.Errorf("the collector responded with status %d", res.StatusCode)
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After")) // 0 if it is not a number
		return 0, time.Duration(max(0, min(seconds, 3600))) * time.Second, err
	}
	return 0, -1, err
}

// withoutURL removes the URL from an error of net/http.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// rejected returns partial_success.rejected_spans of an ExportTraceServiceResponse.
func rejected(response []byte) uint64 {
	return varint(bytesOf(response, 1), 1)
}

// bytesOf returns the field with the given number and type bytes of a message, or nil.
func bytesOf(message []byte, number protowire.Number) (found []byte) {
	each(message, func(n protowire.Number, kind protowire.Type, value []byte) {
		if n == number && kind == protowire.BytesType {
			found, _ = protowire.ConsumeBytes(value)
		}
	})
	return found
}

// varint returns the field with the given number and type varint of a message, or 0.
func varint(message []byte, number protowire.Number) (found uint64) {
	each(message, func(n protowire.Number, kind protowire.Type, value []byte) {
		if n == number && kind == protowire.VarintType {
			found, _ = protowire.ConsumeVarint(value)
		}
	})
	return found
}

// each calls f with each field of a message, up to the first malformed one.
func each(message []byte, f func(n protowire.Number, kind protowire.Type, value []byte)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		size := protowire.ConsumeFieldValue(number, kind, message)
		if size < 0 {
			return
		}
		f(number, kind, message[:size])
		message = message[size:]
	}
}
