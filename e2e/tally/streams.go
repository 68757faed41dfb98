package tally

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
)

// streams are callers of HTTP/2 that share a connection.
type streams struct {
	address string
	client  *http.Client
}

func newStreams(cfg Config) *streams {
	var only http.Protocols
	only.SetUnencryptedHTTP2(true)
	return &streams{cfg.Address, &http.Client{
		Transport:     &http.Transport{Protocols: &only, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       patience,
	}}
}

func (s *streams) end() { s.client.CloseIdleConnections() }

// call makes a call. An error that is not errUnanswered is of an answer that
// broke off.
func (s *streams) call(_ int, c *Call) (status int, bytesOut int64, err error) {
	var body io.Reader = http.NoBody
	if c.Body != nil {
		body = bytes.NewReader(c.Body)
	}
	req, err := http.NewRequestWithContext(context.Background(), c.Method, "http://"+s.address+c.Target, body)
	if err != nil {
		return 0, 0, err
	}
	req.Host = c.Host
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return 0, 0, errUnanswered
	}
	defer res.Body.Close()
	if bytesOut, err = io.Copy(io.Discard, res.Body); err != nil {
		return 0, 0, fmt.Errorf("an answer broke off: %w", err)
	}
	return res.StatusCode, bytesOut, nil
}
