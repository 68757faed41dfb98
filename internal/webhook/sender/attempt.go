package sender

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/keygate/keygate/internal/webhook"
)

// Timeout is how long an attempt may take, from the DNS lookup to the last byte of the
// response (specification, Limits).
const Timeout = 30 * time.Second

// Limits of a response, in bytes. The rest of a longer body is not read.
const (
	maxResponseBody = 64 << 10
	maxResponseHead = 64 << 10
)

// attempt makes one request. retryAfter is the wait that the endpoint asked for, or 0.
func (s *Sender) attempt(ctx context.Context, t *task) (a webhook.Attempt, retryAfter time.Duration) {
	started := s.cfg.Now()
	a = webhook.Attempt{Number: t.Attempt, StartedAt: started}
	ctx, cancel := context.WithTimeoutCause(ctx, Timeout, errTimeout)
	defer cancel()
	header, err := s.post(ctx, t, &a)
	a.Duration = s.cfg.Now().Sub(started)
	switch {
	case err != nil:
		a.Error = s.publicText(ctx, err)
		s.cfg.Log.DebugContext(ctx, "webhook attempt failed", "delivery_id", t.DeliveryID, "webhook_id", t.Endpoint.WebhookID, "attempt", t.Attempt, "error", err)
	case a.Status < 100: // net/http takes 000 to 099
		a.Status, a.Error = 0, errorNotHTTP
	case a.Status >= 300 && a.Status <= 399:
		a.Error = "the endpoint responded with a redirect, which is not followed: register the URL that it redirects to"
	}
	if !a.Succeeded() {
		retryAfter = readRetryAfter(header.Get("Retry-After"), s.cfg.Now())
	}
	return a, retryAfter
}

// post sends the request and reads the response into a. header is nil if there was none.
func (s *Sender) post(ctx context.Context, t *task, a *webhook.Attempt) (header http.Header, err error) {
	secrets, err := s.secrets(&t.Endpoint, a.StartedAt)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(context.WithValue(ctx, attemptKey{}, ctx), http.MethodPost, t.Endpoint.URL, bytes.NewReader(t.Payload))
	if err != nil {
		return nil, errors.Join(errBadURL, err)
	}
	m := webhook.Message{EventID: t.EventID, EventType: t.EventType, DeliveryID: t.DeliveryID, Attempt: t.Attempt, Payload: t.Payload}
	for name, value := range m.Header(a.StartedAt, secrets) {
		req.Header[name] = []string{value} // not canonicalized: sent as documented
	}
	// Not sent. It allows the transport to repeat the request if a kept connection turns
	// out to be closed.
	req.Header["Idempotency-Key"] = nil
	res, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	a.Status = res.StatusCode
	if a.Response, err = io.ReadAll(io.LimitReader(res.Body, webhook.KeptResponse)); err != nil {
		return res.Header, err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxResponseBody-webhook.KeptResponse))
	return res.Header, err
}

// secrets decrypts the secrets that sign at the given time.
func (s *Sender) secrets(e *Endpoint, at time.Time) (webhook.Secrets, error) {
	current, err := s.cfg.Sealer.Open(e.Secret)
	if err != nil {
		return webhook.Secrets{}, errors.Join(errSecret, err)
	}
	secrets := webhook.Secrets{Current: string(current)}
	if len(e.OldSecret) == 0 || !at.Before(e.OldUntil) {
		return secrets, nil
	}
	old, err := s.cfg.Sealer.Open(e.OldSecret)
	if err != nil {
		return webhook.Secrets{}, errors.Join(errSecret, err)
	}
	secrets.Old = string(old)
	return secrets, nil
}

// readRetryAfter parses a Retry-After header (RFC 9110, section 10.2.3). It returns 0 if
// the value is invalid or not in the future.
func readRetryAfter(value string, now time.Time) time.Duration {
	seconds, err := strconv.ParseUint(value, 10, 31)
	if err == nil || errors.Is(err, strconv.ErrRange) { // on ErrRange, seconds is the largest value
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
