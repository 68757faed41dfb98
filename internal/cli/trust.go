package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/keygate/keygate/client"
)

// givenCAFile returns the file of --ca-file, else of KEYGATE_CA_FILE, else "".
func (a *app) givenCAFile() string {
	if a.caFile != "" {
		return a.caFile
	}
	file, _ := a.Env("KEYGATE_CA_FILE")
	return file
}

// trusting returns a transport that trusts the authorities whose certificates are in file besides the system's; only the
// system's for "".
func trusting(file string) (http.RoundTripper, error) {
	if file == "" {
		return http.DefaultTransport, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the certificates of --ca-file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s has no certificate: --ca-file must hold certificates in PEM (-----BEGIN CERTIFICATE-----)", file)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return transport, nil
}

// remedyOf says what to do about a server that could not be reached because the address is not quite right, or "".
func remedyOf(err *client.UnreachableError) string {
	_, rest, _ := strings.Cut(err.URL, "://")
	switch {
	case errors.As(err.Err, new(x509.UnknownAuthorityError)):
		return "this machine does not trust the authority that signed the server's certificate: give its certificate with --ca-file FILE or KEYGATE_CA_FILE"
	case errors.Is(err.Err, http.ErrSchemeMismatch), errors.As(err.Err, new(tls.RecordHeaderError)):
		return "the server speaks plain HTTP at this port: give --url http://" + rest
	case strings.Contains(err.Err.Error(), `malformed HTTP response "\x15\x03`): // a TLS alert
		return "the server speaks TLS at this port: give --url https://" + rest
	}
	return ""
}
