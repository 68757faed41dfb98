package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
)

// CertificateFilter restricts Certificates to matching certificates. Zero fields match all certificates.
type CertificateFilter struct {
	Hostname string // the whole hostname
	Query    string // part of the hostname
	ListOptions
}

func certificatePath(certificateID string) string {
	return "/v1/certificates/" + url.PathEscape(certificateID)
}

// Certificates lists the certificates by ACME of the account, newest first.
func (c *Client) Certificates(ctx context.Context, f CertificateFilter) iter.Seq2[Certificate, error] {
	return list[Certificate](ctx, c, "/v1/certificates", filter("hostname", f.Hostname, "q", f.Query), f.PageSize)
}

// Certificate returns one certificate by ACME.
func (c *Client) Certificate(ctx context.Context, certificateID string) (*Certificate, error) {
	return call[Certificate](ctx, c, http.MethodGet, certificatePath(certificateID), nil)
}

// RenewCertificate begins the next attempt to get a certificate within some seconds, and returns the record. The present certificate is
// served until there is a new one. Accounts other than default can do so 5 times a week for a hostname; more is an *Error with status 429.
func (c *Client) RenewCertificate(ctx context.Context, certificateID string, options ...Option) (*Certificate, error) {
	return call[Certificate](ctx, c, http.MethodPost, certificatePath(certificateID)+"/renew", nil, options...)
}
