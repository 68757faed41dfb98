package tally

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
)

// http2Streams makes calls as streams of one shared HTTP/2 connection.
type http2Streams struct {
	address string
	client  *http.Client
}

func newHTTP2Streams(cfg Config) *http2Streams {
	var only http.Protocols
	only.SetUnencryptedHTTP2(true)
	return &http2Streams{cfg.Address, &http.Client{
		Transport:     &http.Transport{Protocols: &only, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       callTimeout,
	}}
}

func (s *http2Streams) close() { s.client.CloseIdleConnections() }

// call makes a call. If there was no response, the error is errNoResponse;
// any other error means that the response broke off.
func (s *http2Streams) call(_ int, c *Call) (status int, bytesOut int64, err error) {
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
		return 0, 0, errNoResponse
	}
	defer res.Body.Close()
	if bytesOut, err = io.Copy(io.Discard, res.Body); err != nil {
		return 0, 0, fmt.Errorf("a response broke off: %w", err)
	}
	return res.StatusCode, bytesOut, nil
}
