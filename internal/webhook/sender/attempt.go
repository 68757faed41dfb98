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

// Timeout is how long an attempt may take, from the look-up of the host to the
// last byte of the answer (specification, Limits).
const Timeout = 30 * time.Second

// maxAnswer is how much of an answer's body is read, and maxAnswerHead of its
// head.
const (
	maxAnswer     = 64 << 10
	maxAnswerHead = 64 << 10
)

// attempt makes one request. retryAfter is how long the endpoint asked to be left
// alone; 0 if it did not.
func (s *Sender) attempt(ctx context.Context, t *task) (a webhook.Attempt, retryAfter time.Duration) {
	started := s.cfg.Now()
	a = webhook.Attempt{Number: t.Attempt, StartedAt: started}
	ctx, cancel := context.WithTimeoutCause(ctx, Timeout, errTimeout)
	defer cancel()
	head, err := s.post(ctx, t, &a)
	a.Duration = s.cfg.Now().Sub(started)
	switch {
	case err != nil:
		a.Error = s.publicText(ctx, err)
		s.cfg.Log.DebugContext(ctx, "webhook attempt failed", "delivery_id", t.DeliveryID, "webhook_id", t.Endpoint.WebhookID, "attempt", t.Attempt, "error", err)
	case a.Status >= 300 && a.Status <= 399:
		a.Error = "the endpoint answered with a redirect, which is not followed: register the URL that it leads to"
	}
	if !a.Succeeded() {
		retryAfter = readRetryAfter(head.Get("Retry-After"), s.cfg.Now())
	}
	return a, retryAfter
}

// post sends the request and reads the answer into a. head is nil if there was
// none.
func (s *Sender) post(ctx context.Context, t *task, a *webhook.Attempt) (head http.Header, err error) {
	secrets, err := s.secrets(&t.Endpoint, a.StartedAt)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.Endpoint.URL, bytes.NewReader(t.Payload))
	if err != nil {
		return nil, errors.Join(errBadURL, err)
	}
	m := webhook.Message{EventID: t.EventID, EventType: t.EventType, DeliveryID: t.DeliveryID, Attempt: t.Attempt, Payload: t.Payload}
	for name, value := range m.Header(a.StartedAt, secrets) {
		req.Header[name] = []string{value} // spelt as documented
	}
	// Not sent: it tells the transport that the request may be repeated when a
	// kept connection turns out to be closed.
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
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer-webhook.KeptResponse))
	return res.Header, err
}

// secrets opens the secrets that sign at the given time.
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

// readRetryAfter reads a Retry-After field (RFC 9110, 10.2.3); 0 if it says
// nothing of the future.
func readRetryAfter(value string, now time.Time) time.Duration {
	seconds, err := strconv.ParseUint(value, 10, 31)
	if err == nil || errors.Is(err, strconv.ErrRange) { // then it is the largest
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
