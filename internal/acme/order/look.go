package order

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/keygate/keygate/internal/acme"
	"github.com/keygate/keygate/internal/certificate"
)

// lookTimeout bounds a look whether a hostname leads here.
const lookTimeout = 10 * time.Second

// publicError is an error whose text may be shown to the account.
type publicError struct {
	text string
	err  error
}

func (e *publicError) Error() string { return e.text }
func (e *publicError) Unwrap() error { return e.err }

// newLook returns a challenge of our own, by which any node shows that a request has reached this installation.
func newLook() acme.Challenge {
	token := rand.Text()
	return acme.Challenge{Token: token, KeyAuthorization: token + "." + rand.Text()}
}

// look returns nil if the hostname leads to this installation: if some node of it responds with the challenge. Nothing that another
// server sends is shown to anybody, and the error does not say what is at the address, which the account may have chosen.
func (o *Orderer) look(ctx context.Context, hostname string, c acme.Challenge) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	port, look := o.cfg.Ports.TLS, o.lookTLS
	if o.cfg.HTTP {
		port, look = o.cfg.Ports.HTTP, o.lookHTTP
	}
	dialer := &net.Dialer{Resolver: o.cfg.Resolver}
	err := look(ctx, dialer, net.JoinHostPort(hostname, strconv.Itoa(port)), hostname, c)
	var dns *net.DNSError
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil && errors.As(err, &dns) && dns.IsNotFound:
		return &publicError{hostname + " is not found in the DNS: give it an A or AAAA record that leads to this installation", err}
	}
	return &publicError{fmt.Sprintf("%s does not reach this installation at port %d: its A and AAAA records must lead here", hostname, port), err}
}

var errOther = errors.New("another server has responded")

func (o *Orderer) lookHTTP(ctx context.Context, dialer *net.Dialer, address, hostname string, c acme.Challenge) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+hostname+"/.well-known/acme-challenge/"+c.Token, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", o.cfg.UserAgent)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10,
	}
	res, err := transport.RoundTrip(req) // which follows no redirect
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // nothing is expected of it
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK || subtle.ConstantTimeCompare(body, []byte(c.KeyAuthorization)) != 1 {
		return errOther
	}
	return nil
}

func (o *Orderer) lookTLS(ctx context.Context, dialer *net.Dialer, address, hostname string, c acme.Challenge) error {
	sum := sha256.Sum256([]byte(c.KeyAuthorization))
	want, err := asn1.Marshal(sum[:])
	if err != nil {
		return err
	}
	d := tls.Dialer{NetDialer: dialer, Config: &tls.Config{
		ServerName: hostname, NextProtos: []string{certificate.ValidationProtocol}, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // the certificate of a validation is self-signed; the digest in it is compared
		VerifyConnection: func(s tls.ConnectionState) error {
			acmeIdentifier := asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 31} // RFC 8737, section 6.1
			for _, e := range s.PeerCertificates[0].Extensions {
				if e.Id.Equal(acmeIdentifier) && bytes.Equal(e.Value, want) && slices.Equal(s.PeerCertificates[0].DNSNames, []string{hostname}) {
					return nil
				}
			}
			return errOther
		},
	}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
