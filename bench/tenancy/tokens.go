//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/stats"
	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/token/tokentest"
)

const (
	junkPerSec      = 10_000
	junkConnections = 50
	junkPause       = 10 * time.Millisecond // between two batches of a connection
)

// tokens measures calls with a key and with a token, alone, beside 10,000 requests a second with keys that nobody has, and
// beside as many with tokens that nobody has signed, each with another kid and from another address.
func tokens(ctx context.Context, o options, dir string, w io.Writer) (string, error) {
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer service.Close()
	signer := tokentest.New([32]byte{1})
	provider := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, signer.JWKS())
	}))
	defer provider.Close()
	s, err := keygate.Start(ctx, keygate.Config{Binary: o.binary, Dir: dir, Args: []string{"--trusted-proxies", "127.0.0.0/8"}})
	if err != nil {
		return "", err
	}
	defer s.Stop()
	host, key, err := prepareTokens(ctx, s, service.URL, provider)
	if err != nil {
		return "", err
	}
	callers := [2]caller{{host, key}, {host, signer.Token(provider.URL, time.Now(), nil)}}
	var measured [3][2][]time.Duration
	var cpu, took [3]time.Duration
	answered, causedBefore := [3]int64{}, 0
	for i, credential := range []func() string{nil, junkKey, func() string { return junkToken(provider.URL) }} {
		if i == 2 {
			if causedBefore, err = causedFetches(ctx, s); err != nil {
				return "", err
			}
		}
		before, err := s.CPU()
		if err != nil {
			return "", err
		}
		start := time.Now()
		if measured[i], answered[i], err = besideJunk(ctx, s, callers, credential, o.duration); err != nil {
			return "", err
		}
		after, err := s.CPU()
		if err != nil {
			return "", err
		}
		cpu[i], took[i] = after-before, time.Since(start)
		fmt.Fprintf(w, "tokens: %d of 3 measurements, %d requests with junk\n", i+1, answered[i])
	}
	caused, err := causedFetches(ctx, s)
	if err != nil {
		return "", err
	}
	t := stats.Table{Columns: []string{"Calls of others", "Alone", "Beside junk keys", "Beside junk tokens", "Target"}}
	for n, name := range []string{"with a key", "with a token"} {
		for _, row := range []struct {
			name string
			q    float64
		}{{"p50", 0.5}, {"p99", 0.99}} {
			cells := []string{name + ", " + row.name + ", ms"}
			for i := range measured {
				cells = append(cells, milliseconds(stats.Quantile(row.q, measured[i][n]...)))
			}
			if row.name == "p99" {
				cells = append(cells, "≤ 1.2 × alone")
			}
			t.Add(cells...)
		}
	}
	t.Add("requests with junk a second", "", perSecond(answered[1], took[1]), perSecond(answered[2], took[2]), strconv.Itoa(junkPerSec))
	t.Add("CPU of the server for each of them, µs", "", each(cpu[1]-cpu[0], answered[1]), each(cpu[2]-cpu[0], answered[2]))
	t.Add("fetches that they caused", "", "", strconv.Itoa(caused-causedBefore), fmt.Sprintf("≤ %.0f", 1+math.Floor(took[2].Minutes()*2)))
	return t.String(), nil
}

func perSecond(n int64, d time.Duration) string { return fmt.Sprintf("%.0f", float64(n)/d.Seconds()) }

func each(cpu time.Duration, n int64) string {
	return fmt.Sprintf("%.1f", float64(cpu.Nanoseconds())/1000/float64(max(1, n)))
}

// prepareTokens creates an issuer whose keys are fetched, a gateway that takes its tokens, and a key.
func prepareTokens(ctx context.Context, s *keygate.Server, upstream string, provider *httptest.Server) (host, key string, err error) {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: provider.Certificate().Raw})
	i, err := s.Admin.CreateIssuer(ctx, client.CreateIssuerRequest{Name: "login", Issuer: provider.URL, JWKSURL: provider.URL, CA: string(ca), Audiences: []string{"api"}})
	if err != nil {
		return "", "", err
	}
	if i, err = s.Admin.RefreshIssuer(ctx, i.IssuerID); err != nil || len(i.Keys) != 1 {
		return "", "", errors.Join(err, fmt.Errorf("the issuer has %d keys, want 1", len(i.Keys)))
	}
	g, err := s.Admin.CreateGateway(ctx, client.CreateGatewayRequest{Name: "called", UpstreamURL: upstream, Issuers: &[]string{"login"}})
	if err != nil {
		return "", "", err
	}
	auth := client.CreateRouteRequestAuthAny
	if _, err := s.Admin.CreateRoute(ctx, g.GatewayID, client.CreateRouteRequest{Path: "/*", Methods: []string{http.MethodGet}, Auth: &auth}); err != nil {
		return "", "", err
	}
	k, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: "caller", Scope: "read"})
	if err != nil {
		return "", "", err
	}
	return g.Hostname, k.Secret, nil
}

// causedFetches returns how many fetches tokens have caused.
func causedFetches(ctx context.Context, s *keygate.Server) (int, error) {
	text, err := s.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nkeygate_issuer_fetches_by_token_total ")
	value, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(value)
}

// junkKey returns a key that nobody has.
func junkKey() string {
	return "kg_" + strconv.FormatUint(rand.Uint64(), 36) + strconv.FormatUint(rand.Uint64(), 36)
}

// junkToken returns a token of the issuer that nobody has signed, with a kid that nobody has.
func junkToken(iss string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode(fmt.Appendf(nil, `{"alg":"EdDSA","kid":"%d"}`, rand.Uint64())) + "." + encode([]byte(`{"iss":"`+iss+`"}`)) + "." + strings.Repeat("A", 86)
}

// besideJunk measures calls of two callers at a steady pace, beside requests with credentials that credential returns, unless
// it is nil. It returns how many of those were answered. If the server does not keep the pace, it takes longer than d.
func besideJunk(ctx context.Context, s *keygate.Server, callers [2]caller, credential func() string, d time.Duration) (taken [2][]time.Duration, answered int64, err error) {
	junking, cancel := context.WithCancel(ctx)
	defer cancel()
	var sending, calling sync.WaitGroup
	var n atomic.Int64
	errs := make([]error, junkConnections+len(callers))
	if credential != nil {
		for i := range junkConnections {
			sending.Go(func() { errs[len(callers)+i] = sendJunk(junking, s.Gateway, callers[0].host, credential, &n) })
		}
	}
	for i := range callers {
		calling.Go(func() {
			hc := &http.Client{}
			defer hc.CloseIdleConnections()
			taken[i], errs[i] = paced(ctx, d, callEvery, func() error { return callers[i].call(ctx, hc, s.Gateway, "/", http.StatusOK) })
		})
	}
	calling.Wait()
	cancel()
	sending.Wait()
	return taken, n.Load(), errors.Join(errs...)
}

// sendJunk sends batches of requests over one connection until ctx ends, each request from another address, and counts the
// responses, none of which may have the status 200.
func sendJunk(ctx context.Context, address, host string, credential func() string, answered *atomic.Int64) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	every := time.NewTicker(junkPause)
	defer every.Stop()
	batch := int(junkPerSec * junkPause / time.Second / junkConnections)
	var out bytes.Buffer
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		out.Reset()
		for range batch {
			a := rand.Uint32()
			fmt.Fprintf(&out, "GET / HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nX-Forwarded-For: 10.%d.%d.%d\r\n\r\n", host, credential(), byte(a>>16), byte(a>>8), byte(a))
		}
		if _, err := conn.Write(out.Bytes()); err != nil {
			return err
		}
		for range batch {
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				return err
			}
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return errors.New("a request with junk had the status 200")
			}
			answered.Add(1)
		}
	}
}
